# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab for the end-to-end tests: raised once, used from where its users stand."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import threading
import time
import typing as t
import xml.etree.ElementTree as ET

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
LAB = (str(CHECKOUT / "build/runtime/bin/python"), "-m", "lab")
JOB_TIMEOUT_S = 300
"""Generous: software emulation on a busy machine takes its time, and no test measures it."""

Result = subprocess.CompletedProcess


@dataclasses.dataclass(frozen=True)
class Ended:
    """A job that is over, and what it left for its owner."""

    job_id: str
    exit_status: int
    out: str
    err: str
    node: str


class Site:
    """The lab, as its users and its administrator see it."""

    def run(self, *arguments: str, stdin: str | bytes | None = None, timeout_s: float = 120) -> Result[str]:
        """One call of the lab's own command."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run([*LAB, *arguments], cwd=CHECKOUT, input=data if data is not None else b"",
                              capture_output=True, timeout=timeout_s)  # fmt: skip
        return Result(
            done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )

    def on(self, node: str, *command: str, user: str | None = None, stdin: str | bytes | None = None) -> Result[str]:
        """Run a command on a node, as root or as a user in his home."""
        who = ("--user", user) if user else ()
        return self.run("on", node, *who, "--", *command, stdin=stdin)

    def root(self, node: str, script: str) -> str:
        """Run a line of shell as root on a node; it must succeed."""
        done = self.on(node, "/bin/sh", "-c", script)
        assert done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout

    def vsub(self, *arguments: str, stdin: str | bytes | None = None, user: str = "alice") -> Result[str]:
        """Submit from the front end."""
        return self.on("fe", "vsub", *arguments, user=user, stdin=stdin)

    def qsub(self, *arguments: str, stdin: str | bytes | None = None, user: str = "alice") -> Result[str]:
        """Submit past vsub."""
        return self.on("fe", "qsub", *arguments, user=user, stdin=stdin)

    def write(self, path: str, content: str, user: str = "alice") -> str:
        """A file of the user's on the shared home."""
        done = self.on("fe", "/bin/sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1" && chmod 755 "$1"', "sh", path,
                       user=user, stdin=content)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return path

    def read(self, path: str) -> str:
        """A file of the shared home, "" when there is none."""
        return self.on("fe", "cat", path).stdout

    def facts(self, job_id: str) -> dict[str, str]:
        """What `qstat -x -f` says of a job, its nested groups left out; {} for an unknown job."""
        done = self.on("fe", "qstat", "-x", "-f", job_id)
        if done.returncode != 0:
            return {}
        job = ET.fromstring(done.stdout).find("Job")
        assert job is not None, done.stdout
        return {child.tag: child.text or "" for child in job}

    def wait_for(self, what: str, probe: t.Callable[[], t.Any], timeout_s: float = JOB_TIMEOUT_S) -> t.Any:
        """Ask until the answer is true; the failure says what was waited for and what was seen."""
        end = time.monotonic() + timeout_s
        pause = threading.Event()
        while not (answer := probe()):
            assert time.monotonic() < end, f"waited {timeout_s} s for {what}; last seen: {answer!r}"
            pause.wait(0.2)
        return answer

    def wait_state(self, job_id: str, states: str) -> dict[str, str]:
        """Wait until the job is in one of these states (letters of qstat)."""

        def probe() -> dict[str, str] | None:
            facts = self.facts(job_id)
            return facts if facts.get("job_state", "?") in states else None

        return self.wait_for(f"job {job_id} in state {states} ({self.facts(job_id).get('job_state')})", probe)

    def end(self, job_id: str) -> Ended:
        """Wait for the end of a batch job and collect its output."""
        facts = self.wait_state(job_id, "C")
        out, err = (facts[key].partition(":")[2] for key in ("Output_Path", "Error_Path"))
        node = facts.get("exec_host", "").partition("/")[0]
        return Ended(job_id, int(facts.get("exit_status", "-999")), self.read(out), self.read(err), node)

    def submit(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        """vsub that must succeed; the job's id."""
        done = self.vsub(*arguments, stdin=stdin)
        assert done.returncode == 0, f"vsub {arguments}: {done.stderr}"
        return done.stdout.strip()

    def job(self, *arguments: str, stdin: str | bytes | None = None) -> Ended:
        """A batch job from its submission to its end."""
        return self.end(self.submit(*arguments, stdin=stdin))

    def left(self) -> t.Any:
        """What any node still has of any job: nothing, it is hoped."""
        return json.loads(self.run("left", "--json").stdout)

    def nothing_left(self) -> bool:
        """True when no node has anything of a job."""
        return self.run("left").returncode == 0


@pytest.fixture(scope="session")
def site() -> t.Iterator[Site]:
    """The lab, up; it ends with the tests unless it was up before them (`make lab`)."""
    here = Site()
    was_up = here.run("status").returncode == 0
    if not was_up:
        raised = here.run("up", "--pool", str(CHECKOUT / "build/pool"), timeout_s=300)
        assert raised.returncode == 0, raised.stdout + raised.stderr
    yield here
    if not was_up and not os.environ.get("VTORQUE_KEEP_LAB"):
        here.run("down")


@pytest.fixture(autouse=True)
def leaves_nothing(site: Site) -> t.Iterator[None]:
    """Every test ends with a look at what is left on all nodes, and finds nothing."""
    yield
    site.wait_for("nothing to be left on any node", site.nothing_left, timeout_s=60)
