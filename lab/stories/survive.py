# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The story of `make demo STORY=survive`: a ring of messages between four guests outlives both of its nodes."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import threading
import time
import typing as t

from rich.console import Console

from . import fronts
from .demo import JOB_TIMEOUT_S, Failure, find_job, on, play

FORMER, LATER = ("cn1", "cn2"), ("cn3", "cn4")
NODES = ("fe", *FORMER, *LATER)
STORE = "/home/.checkpoints"
SETTINGS = {"checkpoint_dir": STORE, "checkpoint_min": 0, "home_via": "nfs", "vm_nfs_home": "10.77.0.1:/home"}
"""Checkpoints where all nodes see them, and homes with which guests can be saved."""
NFS = "env PYTHONPATH=/opt/vtorque-lab /opt/vtorque-lab/venv/bin/python -m lab.revive nfs"
RING = pathlib.Path(__file__).with_name("ring.sh")
OUTPUT = "cat /var/spool/torque/spool/*.OU"
LINE = r"^line (\d+): past 4 guests$"


class Survival:
    """The job whose nodes are lost.

    Args:
        console: where the story is told.
    """

    def __init__(self, console: Console) -> None:
        self.console, self.front, self.job_id = console, fronts.FRONTS["torque"], ""

    def say(self, text: str) -> None:
        """Print lines as they are."""
        self.console.print(text, highlight=False, markup=False)

    def root(self, node: str, line: str) -> str:
        """Run a line of shell that must end well."""
        done = on(node, "/bin/sh", "-c", line)
        if done.returncode:
            raise Failure(f"{node}: {line}: {done.stderr}")
        return done.stdout

    def type_line(self, line: str, user: str = "alice") -> str:
        """Show and run what somebody types on the front end."""
        self.say(f"  {user}@fe {'#' if user == 'root' else '$'} {line}")
        done = on("fe", "/bin/sh", "-c", line, user=user)
        if done.returncode:
            raise Failure(done.stderr)
        if done.stdout.strip():
            self.say(f"    {done.stdout.strip()}")
        return done.stdout

    def wait_for(self, what: str, reached: t.Callable[[], bool]) -> None:
        """Ask until something is so."""
        end, pause = time.monotonic() + JOB_TIMEOUT_S, threading.Event()
        while not reached():
            if "ring" in what and (seen := find_job(self.front, self.job_id)).exit_status:
                text = "".join(self.root("fe", f"cat {path}") for path in seen.files)
                raise Failure(f"the job is over: {text[-400:]}")
            if time.monotonic() > end:
                raise Failure(f"{what}: not within {JOB_TIMEOUT_S} s")
            pause.wait(0.5)

    def rounds(self, nodes: tuple[str, ...]) -> list[int]:
        """Return the numbers of the lines that the job has printed, on whichever of these nodes leads it."""
        text = "".join(on(node, "/bin/sh", "-c", OUTPUT).stdout for node in nodes)
        return [int(number) for number in re.findall(LINE, text, re.MULTILINE)]

    def wait_rounds(self, nodes: tuple[str, ...], more: int) -> None:
        """Wait until the ring has gone round some more times, and say where it is."""
        there = len(self.rounds(nodes))
        self.wait_for("the ring", lambda: len(self.rounds(nodes)) >= there + more)
        self.say(f"    {self.job_id} on {' and '.join(nodes)}: round {len(self.rounds(nodes))}")

    def lab(self, *arguments: str) -> None:
        """Have something happen to a node."""
        done = subprocess.run([sys.executable, "-m", "lab", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(done.stderr)

    def set_up(self, nodes: tuple[str, ...]) -> None:
        """Add the site's settings to those of the lab."""
        lines = "".join(f"{name}: {json.dumps(value)}\n" for name, value in SETTINGS.items())
        stored = f"grep -v -E '^({'|'.join(SETTINGS)}):' /etc/vtorque/vtorque.yml; :"
        for node in nodes:
            text = self.root(node, stored) + lines
            on(node, "/bin/sh", "-c", "cat >/etc/vtorque/vtorque.yml", stdin=text)

    def tell(self) -> None:
        """The whole story; a part that does not go as told is a failure."""
        self.root("fe", f"mkdir -p -m 700 {STORE}; {NFS}; pbsnodes -o {' '.join(LATER)}")
        self.set_up(NODES)
        on("fe", "sh", "-c", "cat >/home/alice/ring.sh; rm -f /home/alice/go", user="alice", stdin=RING.read_text())

        self.say("\n1. a message goes round four guests on two nodes; each of them checks it")
        line = "vsub -l nodes=2:ppn=2 -vm vms_per_node=2,vcpus=1,ram=192M,checkpoint=on ring.sh"
        self.job_id = self.type_line(line).split()[-1]
        self.wait_for("the ring", lambda: bool(self.rounds(FORMER)))
        self.wait_rounds(FORMER, 3)
        self.say("\n2. all guests are saved at the same moment, and go on")
        self.type_line(f"vmgr job checkpoint {self.job_id}")
        self.wait_for("the checkpoint", lambda: on("fe", "test", "-d", f"{STORE}/{self.job_id}/1").returncode == 0)
        self.wait_rounds(FORMER, 10)

        self.say("\n3. both nodes lose their power; when they are back, they are kept out of use")
        self.type_line(f"qhold -h u {self.job_id}", user="root")
        for node in FORMER:
            self.lab("lose", node)
        self.wait_for("the loss", lambda: self.root("fe", "pbsnodes | grep -c 'state = down'; :").strip() == "2")
        for node in FORMER:
            self.lab("back", node)
            on(node, "/opt/vtorque/bin/vtorque-sweep", "--boot")
        held = "the job to be held"
        self.wait_for(held, lambda: "job_state = H" in self.root("fe", f"qstat -f {self.job_id}"))
        self.set_up(FORMER)
        self.type_line(f"pbsnodes -o {' '.join(FORMER)}; pbsnodes -c {' '.join(LATER)}", user="root")

        self.say("\n4. the job goes on from its checkpoint, on two other nodes: the same guests in the same round")
        self.type_line(f"qrls -h u {self.job_id}", user="root")
        self.wait_for("the ring", lambda: bool(self.rounds(LATER)))
        self.wait_rounds(LATER, 5)
        self.type_line("touch go")
        self.wait_for("the end", lambda: bool(find_job(self.front, self.job_id).exit_status))
        seen = find_job(self.front, self.job_id)
        text = "".join(self.root("fe", f"cat {path}") for path in seen.files)
        found = [int(number) for number in re.findall(LINE, text, re.MULTILINE)]
        self.say(f"    {len(found)} rounds, each printed once; {text.strip().splitlines()[-1]}")
        self.say(f"    exit status {seen.exit_status}")
        if found != list(range(1, len(found) + 1)) or seen.exit_status != "0" or "the ring ended well" not in text:
            raise Failure(f"the ring did not go on as it was: {text[-400:]}")


def main() -> int:
    """Tell the story; exit status 1 when it did not go as told."""
    return play(lambda console: Survival(console).tell())


if __name__ == "__main__":
    raise SystemExit(main())
