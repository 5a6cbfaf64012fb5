# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of an installation by the roles: nodes boot from it, and it stays as long as they stand on it."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from lab.cluster import lifecycle, on_nodes
from lab.installation import installed
from lab.system.state import State


def raised(state: State, place: pathlib.Path) -> None:
    lifecycle.up(state, lifecycle.Plan(("fe",), runtime=pathlib.Path(sys.prefix), bare=True, by_roles=place))


def on_fe(state: State, script: str) -> str:
    line = on_nodes.command(state.running(), "fe", ["/bin/sh", "-c", script])
    return subprocess.run(line, stdout=subprocess.PIPE, text=True, timeout=600, check=True).stdout


def keep(place: pathlib.Path) -> pathlib.Path:
    """As `lab install` does, with a line of shell in place of the roles."""
    installed.wheels(place).mkdir(parents=True)
    state = State(place.with_name("making"))
    try:
        raised(state, place)
        on_fe(state, f"mkdir -p /opt/vtorque && echo {place.name} >/opt/vtorque/which && echo {place.name} >/etc/which")
        lifecycle.lose(state, "fe")
        installed.keep(state, ["fe"], place)
    finally:
        lifecycle.down(state)
    return place


def test_disks_stay_as_long_as_a_lab_stands_on_them(tmp_path: pathlib.Path) -> None:
    former, other = keep(tmp_path / "f0"), keep(tmp_path / "a1")
    lab = State(tmp_path / "lab")
    raised(lab, former)
    try:
        installed.forget(tmp_path)
        assert installed.is_whole(former)
        assert not other.exists()
        assert on_fe(lab, "cat /opt/vtorque/which /etc/which") == "f0\nf0\n"
    finally:
        lifecycle.down(lab)
    installed.forget(tmp_path)
    assert not former.exists()
