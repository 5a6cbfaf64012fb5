# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What settings of a guest's disks and cards gain, in one guest by KVM that has a disk and a card of each setting.

The guest is a job's, in the machine of the lab that has a /dev/kvm (`lab machine`).  Its disks and cards take turns, so
that other work on this machine meets all of them alike, and a setting is held against the plain one of its own round.
"""

from __future__ import annotations

import collections
import json
import pathlib
import shlex
import subprocess
import typing as t

from lab.cluster import on_nodes
from lab.machine import hardware, machine, patience
from lab.system.state import DEFAULT

from . import iron
from .figures import Figure
from .measure import Progress
from .site import USER, Site, Trouble

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = CHECKOUT / "templates/domain.xml.j2"
SOURCE = pathlib.Path(__file__).parent / "inside/probe.c"
PYTHON = str(CHECKOUT / "build/runtime/bin/python")
PROGRAMS = CHECKOUT / "build/bench"
"""The probe, and the ping-pong of the manual."""
HOME = f"/home/{USER}"
PLAIN = "plain"
"""As libvirt has it when nothing is said."""
DISKS = {
    PLAIN: "",
    "same": "",
    "unsafe": "cache='unsafe'",
    "iothread": "iothread='1'",
    "unsafe_iothread": "cache='unsafe' iothread='1'",
    "unsafe_uring": "cache='unsafe' io='io_uring'",
    "native": "cache='none' io='native'",
}
"""Attributes of a disk's driver.  `same` is another plain one: as far as it is from 1, others may be for nothing."""
CARDS = {
    PLAIN: "",
    "same": "",
    "queues": "<driver name='vhost' queues='2'/>",
    "ring": "<driver name='vhost' rx_queue_size='1024'/>",
    "no_vhost": "<driver name='qemu'/>",
}
"""The driver of a card."""
DISK_WORK = {
    "sync": "written 4 KiB at a time, each to the disk",
    "write": "written 1 MiB at a time",
    "read": "read 4 KiB at a time",
}
CARD_WORK = {
    "pingpong": "64 bytes to the node and back",
    "send": "one flow to the node",
    "receive": "one flow from the node",
    "receive_flows": "four flows from the node",
}
ROUNDS = 7
ANSWER_S = 7200
REQUEST = "img=tiny,hypervisor=kvm,vcpus=2,ram=256M"
SWITCHES = (
    "--submit", "vsub -l nodes=cn1:ppn=4", "--vm", "img=tiny,hypervisor=kvm,vcpus=1,ram=256M",
    "--directory", f"{HOME}/switches", "--disk", "/dev/vda", "--copy-mib", "16", "--rounds", "1",
)  # fmt: skip
"""Of `iron`, in the machine: two guests of one vCPU, whose disk has nothing on it."""
OPEN_DISK = "#!/bin/sh\nchmod 666 /dev/vda\n"
SCRATCH_MIB = 64
SCRATCH = "/var/lib/libvirt/images/bench"
SITE_TEMPLATE, GUEST_HOOK = "/etc/vtorque/templates/domain.xml.j2", "/etc/vtorque/guest-hooks/prologue"
MOUNT = f"""
disk=$(ls -d /sys/bus/pci/devices/0000:02:00.0/nvme/nvme*/nvme*n1) && disk=${{disk##*/}} &&
mknod /dev/$disk b $(tr : ' ' </sys/class/block/$disk/dev) &&
mkfs.ext4 -q -F /dev/$disk && mkdir -p {SCRATCH} && mount /dev/$disk {SCRATCH}
""".strip()
"""What nodes write is in memory, where a flush costs nothing and O_DIRECT is refused: so a disk of the machine's."""


PUT = """
import pathlib, sys
place = pathlib.Path(sys.argv[1])
place.parent.mkdir(parents=True, exist_ok=True)
place.write_text(sys.argv[2], encoding="utf-8")
place.chmod(0o755)
"""


def figures() -> tuple[Figure, ...]:
    """The figures: each setting over the plain one, then each switch of a request over a job without any."""
    return (*of_settings(), *of_switches())


def of_settings() -> tuple[Figure, ...]:
    """The first: disks and cards in one guest."""
    found = []
    for kinds, work, what in ((DISKS, DISK_WORK, "disk"), (CARDS, CARD_WORK, "card")):
        for kind in kinds:
            if kind != PLAIN:
                found += [
                    Figure(f"{what}_{kind}_{name}_ratio", f"{what} {kind}, {arguments}, over a plain one", None)
                    for name, arguments in work.items()
                ]
    return tuple(found)


def of_switches() -> tuple[Figure, ...]:
    """The others: the two guests of a job."""
    found = []
    for setting in iron.SETTINGS:
        if setting.name != iron.PLAIN:
            found += [
                Figure(f"switch_{setting.name}_{work}_ratio", f"{setting.meaning}: {arguments}", None)
                for work, arguments in iron.WORK.items()
            ]
        over = f"{setting.meaning}: the region over TCP"
        found.append(Figure(f"switch_{setting.name}_region_over_tcp", over, None, 6))
    return tuple(found)


def ratios(lines: t.Iterable[str]) -> dict[str, list[float]]:
    """The figures of what the probe printed.

    Args:
        lines: what, name, seconds.

    Raises:
        Trouble: a line is none of the probe's.
    """
    seconds: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for line in lines:
        fields = line.split()
        if len(fields) != 3 or not fields[2].replace(".", "", 1).isdecimal():
            raise Trouble(f"the probe says: {line}")
        seconds[fields[0], fields[1]].append(float(fields[2]))
    found = {}
    for (work, kind), taken in seconds.items():
        what = "disk" if work in DISK_WORK else "card"
        if kind != PLAIN:
            plain = seconds[work, PLAIN]
            found[f"{what}_{kind}_{work}_ratio"] = [one / other for one, other in zip(taken, plain, strict=True)]
    return found


def template(text: str) -> str:
    """The template of a guest's domain with a disk and a card of each setting besides its own.

    Args:
        text: the product's.
    """
    disks = "".join(
        "<disk type='file' device='disk'>"
        f"<driver name='qemu' type='qcow2' discard='unmap' {driver}/>"
        f"<source file='{_scratch(kind)}'/><target dev='vd{chr(ord('h') + number)}' bus='virtio'/>"
        f"<serial>{kind}</serial></disk>\n"
        for number, (kind, driver) in enumerate(DISKS.items())
    )
    cards = "".join(
        f"<interface type='bridge'><mac address='{_mac(number)}'/><source bridge='{{{{ spec.bridge }}}}'/>"
        f"<model type='virtio'/>{driver}</interface>\n"
        for number, driver in enumerate(CARDS.values())
    )
    threads = "{% if not spec.io_threads %}\n  <iothreads>1</iothreads>\n{% endif %}\n"
    for mark, added in (("  </devices>", disks + cards), ("{% if spec.boot_mode == 'uefi' %}\n  <os", threads)):
        if text.count(mark) != 1:
            raise Trouble(f"{TEMPLATE} has not one {mark!r}, before which disks and cards are added")
        text = text.replace(mark, added + mark)
    return text


def _scratch(kind: str) -> str:
    return f"{SCRATCH}/{kind}.qcow2"


def _mac(number: int) -> str:
    return f"52:54:00:be:00:{number:02x}"


def _address(number: int, host: int) -> str:
    return f"10.99.{number}.{host}"


def script() -> str:
    """What the site has guests do as root before the job: open the disks to the job, and give the cards addresses."""
    cards = "\n".join(f"{_mac(number)}) address={_address(number, 2)} ;;" for number in range(len(CARDS)))
    return f"""#!/bin/sh
for disk in /sys/block/vd*; do [ ! -s $disk/serial ] || chmod 666 /dev/${{disk##*/}}; done
for card in /sys/class/net/eth*; do
    case $(cat $card/address) in
{cards}
        *) continue ;;
    esac
    ip address add $address/24 dev ${{card##*/}} && ip link set ${{card##*/}} up
done
"""


def job() -> str:
    """The script of the job."""
    cards = " ".join(f"{kind}={_address(number, 1)}" for number, kind in enumerate(CARDS))
    return f"""#!/bin/sh
for kind in {" ".join(DISKS)}; do
    for disk in /sys/block/vd*; do
        [ "$(cat $disk/serial)" != $kind ] || disks="$disks $kind=/dev/${{disk##*/}}"
    done
done
./probe disk {ROUNDS} $disks
./probe net {ROUNDS} {cards}
"""


class MachineSite(Site):
    """A lab in the machine that has a /dev/kvm; both end with it."""

    def __init__(self, pool: pathlib.Path) -> None:
        super().__init__(pool)
        self._machine = machine.state_of(self._state)
        self._inits: dict[str, int] = {}

    def __enter__(self) -> MachineSite:
        machine.up(self._machine, hardware.Size(), 1)
        try:
            self.machine(PYTHON, "-m", "lab", "up", "--nodes", "fe,cn1", "--pool", str(self._pool.absolute()))
            facts = json.loads(self.machine("cat", str(DEFAULT / "lab.json")))
            self._inits = {name: init["pid"] for name, init in facts["inits"].items()}
            self.sh("fe", patience.front_end())
            self.sh("cn1", patience.node())
        except BaseException:
            machine.down(self._machine)
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        machine.down(self._machine)

    def machine(self, *arguments: str) -> str:
        """Run a command in the machine, as root.

        Raises:
            Trouble: it failed.
        """
        line = machine.command(self._machine, arguments, str(CHECKOUT), terminal=False)
        done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=ANSWER_S)
        if done.returncode:
            raise Trouble(f"{' '.join(arguments)}: {(done.stderr or done.stdout)[-2000:]}")
        return done.stdout

    def line(self, node: str, arguments: t.Sequence[str], user: str) -> list[str]:
        """See `Site.line`."""
        return machine.command(self._machine, self.line_in(node, arguments, user), "/", terminal=False)

    def line_in(self, node: str, arguments: t.Sequence[str], user: str = "root") -> list[str]:
        """The same, for a shell of the machine itself."""
        return on_nodes.enter(self._inits[node], arguments, user=user)

    def sh(self, node: str, text: str, user: str = "root") -> str:
        """Run a line of shell on a node of it.

        Raises:
            Trouble: it failed.
        """
        return self.machine(*self.line_in(node, ["/bin/sh", "-c", text], user))


def measure(pool: pathlib.Path, progress: Progress) -> dict[str, list[float]]:
    """The ratios, by the keys of `figures`.

    Raises:
        Trouble: the guest did not come, or the probe failed in it.
        LabError: there is no machine.
    """
    progress("a machine with KVM, and a lab in it", 0, 4)
    try:
        iron.compile_programs(PROGRAMS)
    except iron.IronError as error:
        raise Trouble(str(error)) from error
    with MachineSite(pool) as site:
        progress("a job whose guest has a disk and a card of each setting", 1, 4)
        _prepare(site)
        site.ask("fe", "write_file", f"{HOME}/bench.sh", job(), user=USER)
        number = site.ask("fe", "submit", REQUEST, f"{HOME}/bench.sh", ["-l", "nodes=1:ppn=3"], user=USER)
        site.sh("fe", f"until qstat {number} | grep -q ' C '; do sleep 5; done")
        lines = site.sh("fe", f"cat {HOME}/bench.sh.o*").splitlines()
        found = ratios(lines)
        progress("a job of two guests for each switch", 2, 4)
        found |= _switches(site)
        progress("done", 4, 4)
        if found.keys() != {figure.key for figure in figures()}:
            raise Trouble(f"the job said: {lines[-3:]} {site.sh('fe', f'cat {HOME}/bench.sh.e*')[-2000:]}")
        return found


def _switches(site: MachineSite) -> dict[str, list[float]]:
    """What `make bench-iron` finds, with the node as it is without the disks and cards of above.

    Raises:
        Trouble: a job failed, or was refused.
    """
    site.sh("cn1", f"rm {SITE_TEMPLATE} && printf %s {shlex.quote(OPEN_DISK)} >{GUEST_HOOK}")
    place = f"{HOME}/switches"
    files = " ".join(str(path) for path in (iron.__file__, *(PROGRAMS / name for name in iron.SOURCES)))
    site.sh("fe", f"install -d -o {USER} {place} && install -m 755 -o {USER} {files} {place}")
    message = shlex.join(["/usr/bin/python3", f"{place}/iron.py", *SWITCHES])
    report = site.sh("fe", f"{message} 2>&1", user=USER)
    if "left out" in report or "without" in report.replace("without switches", ""):
        raise Trouble(report[-2000:])
    found: dict[str, list[float]] = json.loads(site.sh("fe", f"cat {place}/figures.json"))["ratios"]
    return found


def _prepare(site: MachineSite) -> None:
    site.sh("fe", f"install -m 755 -o {USER} {PROGRAMS / 'probe'} {HOME}/probe")
    for path, text in ((SITE_TEMPLATE, template(TEMPLATE.read_text(encoding="utf-8"))), (GUEST_HOOK, script())):
        site.machine(*site.line_in("cn1", ["/usr/bin/python3", "-c", PUT, path, text]))
    made = " && ".join(f"qemu-img create -q -f qcow2 {_scratch(kind)} {SCRATCH_MIB}M" for kind in DISKS)
    places = " && ".join(f"ip address add {_address(number, 1)}/24 dev br0" for number in range(len(CARDS)))
    site.sh("cn1", f"{MOUNT} && {made} && {places}")
    site.sh("cn1", f"setsid {HOME}/probe serve </dev/null >/dev/null 2>&1 & sleep 1")
