# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab in a machine that has a real /dev/kvm (`lab machine`), as its users and its administrator see it."""

from __future__ import annotations

import json
import typing as t

import pytest

from lab.machine import machine
from lab.state import State

from ..conftest import CHECKOUT, LAB, Result, Site

NODES = ("fe", "cn1")


class MachineSite(Site):
    """See `Site`: each call goes into the machine by ssh."""

    def __init__(self) -> None:
        super().__init__()
        self._state = machine.state_of(State())

    def machine(self, *command: str) -> str:
        """Run a command in the machine itself, as root; it must succeed."""
        done = self._call(command, None, 900)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _call(self, line: t.Sequence[str], stdin: str | bytes | None, timeout_s: float) -> Result[str]:
        into = machine.command(self._state, list(map(str, line)), str(CHECKOUT), terminal=False)
        return super()._call(into, stdin, timeout_s)

    def on(self, node: str, *command: str, user: str | None = None, stdin: str | bytes | None = None) -> Result[str]:
        """See `Site.on`."""
        return self._call([*LAB, "on", node, "--user", user or "root", "--", *command], stdin, 900)

    def left_on_nodes(self) -> list[str]:
        """See `Site.left_on_nodes`."""
        found = json.loads(self._call([*LAB, "left", "--json"], None, 900).stdout)
        return [f"{node}: {thing}" for node, there in found.items() for thing in there]


@pytest.fixture(scope="session")
def site() -> t.Iterator[MachineSite]:
    """The lab in the machine, both up; the machine ends with the tests unless it was up before them."""
    lab = Site()
    booted = lab.run("machine", "up")
    assert booted.returncode == 0, booted.stdout + booted.stderr
    here = MachineSite()
    try:
        here.up("--nodes", ",".join(NODES), by_roles=False)
        yield here
    finally:
        if "already" not in booted.stdout:
            lab.run("machine", "down")
