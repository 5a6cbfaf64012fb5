# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of nodes and labs."""

from __future__ import annotations

import pathlib

import pytest

from lab.system.state import LabError, State, addresses


@pytest.mark.parametrize(
    "names",
    [
        ("cn1",),
        ("fe", "fe"),
        ("fe", "cn-1"),
        ("fe", "CN1"),
        ("fe", "sw"),
        ("fe", "../x"),
        ("fe", "n1."),
        ("fe", "n1..site"),
        ("fe", ".n1"),
        ("fe", "n1.site.example"),
    ],
)
def test_names_that_are_no_nodes_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(LabError):
        addresses(names)


def test_the_default_lab_does_not_own_the_names_of_others(tmp_path: pathlib.Path) -> None:
    default, mine = State(pathlib.Path("/run/vtorque-lab")), State(tmp_path)
    assert default.owns(default.name("cn1"))
    assert not default.owns(mine.name("cn1"))
    assert not mine.owns(default.name("cn1"))
