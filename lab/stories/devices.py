# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The story of `make demo STORY=devices`, on a lab in the machine that has a /dev/kvm: cores, cells, pages and cards.

A job has two guests by KVM.  Each has a core of its own in one of the node's two NUMA cells, memory of that cell in
huge pages, and a network card of the node.  What programs in the guests say is printed, and held against the record.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import typing as t

from ..cluster import on_nodes
from ..machine import machine, patience
from ..system import places
from ..system.state import DEFAULT, LabError, State

USER, NODE = "alice", "cn1"
CARDS = ("0000:01:00.0", "0000:c9:00.0")
"""One in each half of the machine (`hardware.py`), of which the second names its cell."""
CARD_ID = "8086:10d3"
PROGRAMS = ("lscpu", "numactl", "lspci")
CALL_S = 2400
REQUEST = (
    "vsub -l nodes=cn1:ppn=3 -vm img=tiny,hypervisor=kvm,vms_per_node=2,vcpus=1,ram=256M,vcpu_pinning=true,"
    "hugepages=2M,pci=nic:1 guests.sh"
)
LOOK = """#!/bin/sh
# what a guest is, as its own programs have it
cd "$HOME/programs" || exit
run() { program=$1; shift; ./lib/ld.so --library-path ./lib "./$program" "$@"; }
echo "== $(hostname): lscpu"
run lscpu | grep -e '^CPU(s)' -e Hypervisor -e 'Virtualization type' -e '^NUMA' -e 'per core' -e '^Socket'
if [ -e numactl ]; then
    echo "== $(hostname): numactl -H"
    run numactl -H
else
    echo "== $(hostname): cells (from /sys: numactl is not installed)"
    for cell in /sys/devices/system/node/node[0-9]*; do
        echo "$(basename $cell) cpus: $(cat $cell/cpulist)"
        sed -n 's/^Node \\([0-9]*\\) MemTotal: *\\(.*\\)/node \\1 size: \\2/p' $cell/meminfo
    done
fi
if [ -e lspci ]; then
    echo "== $(hostname): lspci -nn"
    run lspci -nn
else
    echo "== $(hostname): PCI devices (from /sys: lspci is not installed)"
    for card in /sys/bus/pci/devices/*; do
        echo "$(basename $card) $(cut -c3- $card/class): $(cut -c3- $card/vendor):$(cut -c3- $card/device)"
    done
fi
echo "== $(hostname): cell of each card of the node (-1: not known)"
for card in /sys/bus/pci/devices/*; do
    if grep -q 0x10d3 $card/device; then echo "$(basename $card) near cell $(cat $card/numa_node)"; fi
done
"""
JOB = """#!/bin/sh
for guest in $(sort -u "$PBS_NODEFILE"); do
    ssh "$guest" "$HOME/look.sh" || exit
done
"""


class StoryError(Exception):
    """The story did not go as it should."""


def copy_programs(place: pathlib.Path, names: t.Iterable[str] = PROGRAMS) -> list[str]:
    """Put programs of this machine and their libraries into a directory, for guests that have none of their own.

    Args:
        place: of the programs; `lib` in it has the libraries, and the loader as `ld.so`.
        names: of the programs.

    Returns:
        The names of those that this machine has.
    """
    shutil.rmtree(place, ignore_errors=True)
    (place / "lib").mkdir(parents=True)
    found = [path for name in names if (path := shutil.which(name))]
    for path in found:
        shutil.copy(path, place)
        listed = subprocess.run(["/usr/bin/ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(?:=> |^\s)(/\S+) \(", listed, re.MULTILINE):
            name = "ld.so" if pathlib.Path(library).name.startswith("ld-linux") else pathlib.Path(library).name
            shutil.copy(library, place / "lib" / name)
    return [pathlib.Path(path).name for path in found]


def check_record(record: t.Mapping[str, t.Any], output: str) -> None:
    """See to it that both guests had what was requested.

    Args:
        record: of the job, as `vmgr job show --json` has it.
        output: of the job.

    Raises:
        StoryError: one had not.
    """
    guests = record["guests"]
    if record["exit_status"] != 0:
        raise StoryError(f"the job ended with exit status {record['exit_status']}")
    cells = {guest["cells"].partition(":")[0] for guest in guests}
    cores = [guest["vcpu_cores"] for guest in guests]
    if len(guests) != 2 or len(cells) != 2:
        raise StoryError(f"the guests are not in two cells: {[guest['cells'] for guest in guests]}")
    if len(set(cores)) != 2:
        raise StoryError(f"the guests do not have cores of their own: {cores}")
    if {guest["pages"] for guest in guests} != {"2M"}:
        raise StoryError(f"the guests are not in huge pages: {[guest['pages'] for guest in guests]}")
    far = [guest["cells"].partition(":")[0] for guest in guests if CARDS[1] in guest["devices"]]
    if far != ["1"] or output.count("near cell 0") != 1:
        raise StoryError(f"the card of cell 1 is not known to be near the guest's own cell: {far}")
    if output.replace("[", "").count(CARD_ID) < 2:
        raise StoryError("the guests have no card of the node")
    if output.count("KVM") < 2:
        raise StoryError("lscpu in the guests does not name KVM")


class Story:
    """The machine and the lab in it.

    Args:
        state: of the machine.
        write: prints a line.
    """

    def __init__(self, state: State, write: t.Callable[[str], None]) -> None:
        self._state = state
        self._write = write
        self._inits: dict[str, int] = {}

    def call(self, arguments: t.Sequence[str]) -> str:
        """Return what a command in the machine writes.

        Raises:
            StoryError: it failed.
        """
        line = machine.command(self._state, arguments, str(places.CHECKOUT), terminal=False)
        done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=CALL_S)
        if done.returncode:
            raise StoryError(f"{shlex.join(arguments)[-300:]}: {(done.stderr or done.stdout)[-2000:].strip()}")
        return done.stdout

    def on(self, node: str, script: str, user: str = "root") -> str:
        """Return what a line of shell on a node of the lab writes (`call`)."""
        return self.call(on_nodes.enter(self._inits[node], ["/bin/sh", "-c", script], user=user))

    def raise_lab(self, pool: pathlib.Path) -> None:
        """Raise the lab in the machine, with two cards to hand on."""
        python = str(places.CHECKOUT / "build/runtime/bin/python")
        self.call([python, "-m", "lab", "up", "--nodes", f"fe,{NODE}", "--pool", str(pool.absolute())])
        self.find_nodes()
        cards = f"sed -i /^pci_classes:/d {patience.CONFIG}; printf 'pci_classes:\\n  - nic {' '.join(CARDS)}\\n'"
        for node, line in (("fe", patience.front_end()), (NODE, patience.node())):
            self.on(node, f"{cards} >>{patience.CONFIG} && {line}")

    def find_nodes(self) -> None:
        """Learn of the nodes of a lab that is up in the machine."""
        facts = json.loads(self.call(["cat", str(DEFAULT / "lab.json")]))
        self._inits = {name: init["pid"] for name, init in facts["inits"].items()}

    def run(self, programs: pathlib.Path) -> None:
        """Show the node, run the job, and show what its guests say and what its record has."""
        self._show("the node", NODE, "vmgr node topology")
        for name, text in (("look.sh", LOOK), ("guests.sh", JOB)):
            place = f"/home/{USER}/{name}"
            self.on("fe", f"printf %s {shlex.quote(text)} >{place} && chmod 755 {place}", USER)
        self.on("fe", f"cp -r {programs} /home/{USER}/programs && chown -R {USER} /home/{USER}/programs")
        self._write(f"\na job of two guests\n  {USER}@fe $ {REQUEST}")
        job_id = self.on("fe", REQUEST, USER).split()[-1]
        self._write(f"  {job_id}")
        self.on("fe", f"until qstat {job_id} | grep -q ' C '; do sleep 5; done")
        output = self.on("fe", "cat guests.sh.o*", USER)
        for line in output.splitlines():
            self._write(f"    {line}")
        if not output:
            raise StoryError(f"the job has written nothing: {self.on('fe', 'cat guests.sh.e*', USER)[-2000:]}")
        printed = self._show("what the record has", NODE, f"vmgr job show {job_id}")
        if "2M" not in printed:
            raise StoryError("vmgr job show names no huge pages")
        check_record(json.loads(self.on(NODE, f"vmgr job show {job_id} --json")), output)
        pages = self.on(NODE, "cat /sys/devices/system/node/node?/hugepages/hugepages-2048kB/nr_hugepages").split()
        drivers = [self.on(NODE, f"basename $(readlink /sys/bus/pci/devices/{card}/driver)").strip() for card in CARDS]
        self._write(f"\nafterwards: pages set apart {'+'.join(pages)}; drivers of the cards: {' and '.join(drivers)}")
        if set(pages) != {"0"} or set(drivers) != {"e1000e"}:
            raise StoryError("pages or cards did not come back")

    def _show(self, title: str, node: str, line: str) -> str:
        self._write(f"\n{title}\n  root@{node} # {line}")
        text = self.on(node, line)
        for one in text.splitlines():
            self._write(f"    {one}")
        return text


def main() -> int:
    """Tell the story in a machine that is up; exit status 1 when it did not go as it should."""
    parser = argparse.ArgumentParser(prog="python -m lab.stories.devices", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pool", type=pathlib.Path, default=places.CHECKOUT / "build/pool")
    arguments = parser.parse_args()
    story = Story(machine.state_of(State()), lambda line: print(line, flush=True))
    programs = places.CHECKOUT / "build/story-programs"
    try:
        copy_programs(programs)
        story.raise_lab(arguments.pool)
        story.run(programs)
    except (StoryError, LabError) as error:
        print(f"\nthe demo failed: {error}")
        return 1
    print("\nNext: make bench PART=devices (what the switches cost) · make kvm (the tests) · docs/admin/devices.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
