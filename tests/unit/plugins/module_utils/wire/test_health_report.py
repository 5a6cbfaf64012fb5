# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings and reports: what is well, what is worse, and what another node says of itself."""

from __future__ import annotations

import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import (
    BAD,
    CHECKS,
    NONE,
    OK,
    WARN,
    Finding,
    Report,
    ReportRequest,
    examine,
    report_from_dict,
    request_from_dict,
)

DEAD = Finding("libvirt", BAD, BAD, "is dead", "start it")
LOUD = Finding("note", WARN, "yes", "fan is loud")


@pytest.mark.parametrize(
    ("findings", "well", "arguments"),
    [
        ((), True, ()),
        ((Finding("libvirt"), Finding("ssh", NONE, "-")), True, ()),
        ((LOUD,), True, ("note: fan is loud",)),
        ((LOUD, DEAD), False, ("libvirt: is dead (start it)", "note: fan is loud")),
    ],
)
def test_node_needs_somebody_for_what_is_bad(
    findings: tuple[Finding, ...], well: bool, arguments: tuple[str, ...]
) -> None:
    report = Report("cn1", findings)
    assert (report.well, report.problems) == (well, arguments)
    assert report.to_dict()["well"] is well


@pytest.mark.parametrize(
    ("old", "new", "stored"),
    [(None, BAD, BAD), (OK, BAD, BAD), (OK, WARN, WARN), (WARN, OK, WARN), (BAD, WARN, BAD), (NONE, OK, OK)],
)
def test_worse_of_two_findings_stays(old: str | None, new: str, stored: str) -> None:
    others = (Finding("policy"), Finding("note"))
    report = Report("cn1", (others[0], *([Finding("time", old)] if old else []), others[1]))
    after = report.with_finding(Finding("time", new))
    assert [finding.check for finding in after.findings] == ["policy", "time", "note"]
    found = after.finding("time")
    assert found is not None
    assert found.state == stored


def test_report_crosses_a_connection() -> None:
    report = Report("cn1", (DEAD, LOUD), 5.0, 6.5, settings={"bridge": "12ab"}, collection="1.0.0-12ab")
    assert report_from_dict("cn1", report.to_dict()) == report


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1}, {"settings": [1]}, {"settings": None}, {"findings": 7}, {"findings": [{"check": "x"}]},
        {"began": "now"}, {"ended": None},
        {"findings": [{"check": "fan", "state": "ok", "cell": "", "problem": "", "remedy": ""}]},
        {"findings": [{"check": "disk", "state": "odd", "cell": "", "problem": "", "remedy": ""}]},
    ],
)  # fmt: skip
def test_report_of_another_form_is_refused(change: dict[str, t.Any]) -> None:
    with pytest.raises(VTorqueError, match="cn1 gave no report"):
        report_from_dict("cn1", {**Report("cn1", ()).to_dict(), **change})
    with pytest.raises(VTorqueError, match="cn1 gave no report"):
        report_from_dict("cn1", [])


def test_report_of_another_node_is_printable() -> None:
    data = Report("cn1", (Finding("disk", BAD, "\x1b[2J" + "x" * 90, "\x1b[2J" + "y" * 9000),)).to_dict()
    found = report_from_dict("cn1", data).findings[0]
    assert found.cell == "?[2J" + "x" * 16
    assert found.problem.startswith("?[2Jyyy")
    assert len(found.problem) == 600


def fails_with(error: Exception) -> t.Callable[[], Finding]:
    def check() -> Finding:
        raise error

    return check


def test_each_check_has_its_own_end() -> None:
    """One that hangs, fails or is broken hides nothing of what the others found."""
    forever = threading.Event()

    def hang() -> Finding:
        forever.wait()
        return Finding("ssh")

    found = examine(
        {
            "libvirt": lambda: Finding("libvirt"),
            "bridge": fails_with(NodeFault("bridge br0", "is missing", "make it", cause="bridge")),
            "disk": fails_with(OSError(5, "Input/output error")),
            "pool": fails_with(ZeroDivisionError("oh")),
            "ssh": hang,
        },
        timeout_s=2.0,
    )
    forever.set()
    assert [(finding.check, finding.state) for finding in found] == [
        ("libvirt", OK), ("bridge", BAD), ("disk", BAD), ("pool", BAD), ("ssh", BAD),
    ]  # fmt: skip
    assert (found[1].problem, found[1].remedy) == ("bridge br0: is missing", "make it")
    assert found[1].explanation == "bridge br0: is missing (make it)"
    assert "Input/output error" in found[2].problem
    assert "a fault in vTorque itself: ZeroDivisionError('oh')" in found[3].problem
    assert (found[4].cell, found[4].problem[:21]) == ("silent", "gave no answer within")


def test_request_crosses_a_connection() -> None:
    assert request_from_dict(ReportRequest(7).to_dict()) == ReportRequest(7.0)


@pytest.mark.parametrize(
    "change",
    [{"version": 1}, {"timeout_s": 0}, {"timeout_s": 1e9}, {"timeout_s": True}, {"timeout_s": "5"}, {"more": 1}],
)
def test_request_of_another_form_is_refused(change: dict[str, t.Any]) -> None:
    with pytest.raises(VTorqueError, match="the request for a report"):
        request_from_dict({**ReportRequest(7).to_dict(), **change})


def test_every_check_has_one_name() -> None:
    assert len(set(CHECKS)) == len(CHECKS)
