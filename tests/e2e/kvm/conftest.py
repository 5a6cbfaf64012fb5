# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab in a machine that has a real /dev/kvm (`lab machine`), as its users and its administrator see it."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from lab.cluster import on_nodes
from lab.machine import machine, patience
from lab.system.state import DEFAULT, State

from ..conftest import CHECKOUT, LAB, Ended, Result, Site, check_nothing_left
from ..trouble import CONFIG

NODES = ("fe", "cn1")
CARD = "0000:01:00.0"
"""A network card that nothing uses, as the machine has it (lab/machine/hardware.py)."""
CALL_S = 900
OWN_NETWORK = 'mount -t sysfs none /sys && exec build/runtime/bin/python -I - "$0" "$@"'
"""What the kernel tells of devices is of the namespace in which /sys was mounted."""
LOOK_S = 5.0
"""Between two looks at what a test waits for: each takes an emulated processor as long as some of a guest's work."""


class MachineSite(Site):
    """See `Site`: each call goes into the machine by ssh."""

    look_s = LOOK_S

    def __init__(self) -> None:
        super().__init__()
        self._state = machine.state_of(State())
        self._inits: dict[str, int] = {}

    def machine(self, *command: str) -> str:
        """Run a command in the machine itself, as root; it must succeed."""
        done = self._call(command, None, CALL_S)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def machine_python(self, program: str, *arguments: str) -> str:
        """Run a program in a network namespace of its own in the machine, as root; it must succeed."""
        line = ("unshare", "--net", "--mount", "/bin/sh", "-c", OWN_NETWORK, *arguments)
        done = self._call(line, program, CALL_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _call(self, line: t.Sequence[str], stdin: str | bytes | None, timeout_s: float) -> Result[str]:
        into = machine.command(self._state, list(map(str, line)), str(CHECKOUT), terminal=False)
        return super()._call(into, stdin, timeout_s)

    def on(self, node: str, *command: str, user: str | None = None, stdin: str | bytes | None = None) -> Result[str]:
        """See `Site.on`; no node of it is ever lost."""
        if not self._inits:
            facts = json.loads(self.machine("cat", str(DEFAULT / "lab.json")))
            self._inits = {name: init["pid"] for name, init in facts["inits"].items()}
        line = on_nodes.enter(self._inits[node], command, user=user or "root")
        return self._call(line, stdin, CALL_S)

    def await_file(self, job_id: str, path: str) -> None:
        """Wait for a file that a job makes; or for the end of the job, which is a failure."""
        if not self._await(job_id, path):
            pytest.fail(f"the job is over: {self.end(job_id)}")

    def end(self, job_id: str) -> Ended:
        """See `Site.end`; the server is asked when the job's output is there."""
        self._await(job_id, f"/home/*/*.o{job_id.partition('.')[0]}")
        return super().end(job_id)

    def _await(self, job_id: str, path: str) -> bool:
        """Whether a file is there when the job is over, or before; by one process that waits on the front end."""
        # to ask the batch server is a start of Python, which costs more than all the looks between
        over = f"{{ [ $((looks % 10)) -eq 9 ] && qstat {job_id} | grep -q ' C '; }}"
        there = f"ls {path} >/dev/null 2>&1"
        look = f"looks=0; until {there} || {over}; do looks=$((looks + 1)); sleep 3; done; {there}"
        return self.on("fe", "/bin/sh", "-c", look).returncode == 0

    def left_on_nodes(self) -> list[str]:
        """See `Site.left_on_nodes`."""
        found = json.loads(self._call([*LAB, "left", "--json"], None, CALL_S).stdout)
        return [f"{node}: {thing}" for node, there in found.items() for thing in there]


@contextlib.contextmanager
def handed_on(site: MachineSite, *classes: str) -> t.Iterator[None]:
    """The site hands on devices of its nodes, by lines of `pci_classes`; a job that is refused them is held at once."""
    lines = "".join(f"  - {line}\\n" for line in classes)
    added = f"pci_classes:\\n{lines}node_fault_retries: 1\\n"
    change = f"cp {CONFIG} {CONFIG}.was; sed -i /^pci_classes:/d {CONFIG}; printf '{added}' >>{CONFIG}"
    for node in NODES:
        site.root(node, change)
    try:
        yield
    finally:
        for node in NODES:
            site.root(node, f"mv {CONFIG}.was {CONFIG}")


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing(site: MachineSite) -> t.Iterator[None]:
    """Every file ends with what elsewhere every test ends with: five starts of Python take their time here."""
    yield
    try:
        check_nothing_left(site)
    except AssertionError:
        site.tidy()
        raise


@pytest.fixture(autouse=True)
def bare_home(site: MachineSite) -> None:
    """No file of another test is taken for one of this test's job."""
    site.root("fe", "rm -rf /home/alice/*")


@pytest.fixture(scope="session")
def site() -> t.Iterator[MachineSite]:
    """The lab in the machine, both up; the machine ends with the tests unless it was up before them."""
    lab = Site()
    booted = lab.run("machine", "up")
    assert booted.returncode == 0, booted.stdout + booted.stderr
    here = MachineSite()
    try:
        here.up("--nodes", ",".join(NODES), by_roles=False)
        here.root("fe", patience.front_end())
        here.root("cn1", patience.node())
        yield here
    finally:
        if "already" not in booted.stdout:
            lab.run("machine", "down")
