# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets of nodes, and findings of many of them as one table."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import (
    BAD,
    CHECKS,
    WARN,
    Finding,
    Report,
)
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import checks_table, node_names


@pytest.mark.parametrize(
    ("names", "printed"),
    [
        ([], ""),
        (["cn1"], "cn1"),
        (["cn10", "cn09", "cn08"], "cn[08-10]"),
        (["fe", "cn1", "cn3"], "cn[1,3],fe"),
        (["a.site", "b.site"], "a.site,b.site"),
    ],
)
def test_names_are_folded(names: list[str], printed: str) -> None:
    assert node_names.fold_names(names) == printed


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["cn1"], ("cn1",)),
        (["cn3,cn2 cn3"], ("cn2", "cn3")),
        (["cn3", "cn[1-3]"], ("cn3", "cn1", "cn2")),
        (["cn[09-11]", "fe"], ("cn09", "cn10", "cn11", "fe")),
    ],
)
def test_names_are_unfolded(arguments: list[str], names: tuple[str, ...]) -> None:
    assert node_names.expand_names(arguments) == names


@pytest.mark.parametrize("arguments", [["cn["], [""], [","], ["cn[1-"], ["cn[b-a]"]])
def test_text_that_is_no_node_set_is_refused(arguments: list[str]) -> None:
    with pytest.raises(UserFault, match="node"):
        node_names.expand_names(arguments)


DEAD = Finding("libvirt", BAD, BAD, "is [red]dead[/red]", "start it")
REPORTS = (
    Report("cn1", (Finding("libvirt"), Finding("disk", cell="7%"))),
    Report("cn2", (DEAD, Finding("disk", cell="71%"))),
    Report("cn3", (DEAD, Finding("disk", WARN, "97%", "3G left"))),
    Report("cn4", (Finding("libvirt"), Finding("disk", cell="12%"))),
    Report("cn5", (Finding("libvirt"), Finding("disk", cell="13%"))),
)


def test_hosts_that_agree_stand_together_and_what_is_bad_first() -> None:
    found = checks_table.rows(REPORTS, CHECKS)
    assert [(row.check, row.state, row.nodes, row.value) for row in found] == [
        ("libvirt", "bad", ("cn2", "cn3"), "bad"),
        ("libvirt", "ok", ("cn1", "cn4", "cn5"), "ok"),
        ("disk", "warn", ("cn3",), "97%"),
        ("disk", "ok", ("cn1", "cn2", "cn4", "cn5"), "7% .. 71%"),
    ]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    checks_table.print_table(REPORTS, CHECKS)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "check nodes found",
        "libvirt cn[2-3] bad is [red]dead[/red]",
        "-> start it",
        "cn[1,4-5] ok",
        "disk cn3 97% 3G left",
        "cn[1-2,4-5] 7% .. 71%",
    ]


def test_one_host_needs_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    checks_table.print_table(REPORTS[:1], CHECKS)
    assert "cn1" not in capsys.readouterr().out
