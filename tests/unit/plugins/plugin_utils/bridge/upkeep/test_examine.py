# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This node examined by the checks of job and node, and other nodes asked by ssh."""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import installed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import comparison
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import BAD, CHECKS, Finding, Report
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.upkeep import examine


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks of job and node test good."""

    def good(names: t.Sequence[str]) -> dict[str, t.Callable[[], Finding]]:
        return {name: lambda name=name: Finding(name) for name in names}  # type: ignore[misc]

    monkeypatch.setattr(examine.node_doctor, "checks", lambda *_words: good(CHECKS[1:8]))
    monkeypatch.setattr(examine.job_doctor, "checks", lambda *_words, **_how: good(CHECKS[8:]))
    monkeypatch.setattr(examine.node_doctor, "check_leftovers", lambda *_words: Finding("left", cell="looked"))


def load_broken() -> Policy:
    raise SiteFault("vtorque.yml", "line 3: bridge is no name")


@pytest.mark.usefixtures("well")
def test_all_checks_are_made_in_one_order() -> None:
    before = time.time()
    report = examine.examine_here(lambda: Policy(node_number=1), "cn1")
    assert report.well
    assert [finding.check for finding in report.findings] == list(CHECKS)
    assert before <= report.began <= report.ended <= time.time()
    assert report.settings == comparison.digests(Policy())
    assert report.collection == installed.identity()


@pytest.mark.usefixtures("well")
def test_health_check_asks_little(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(examine.node_doctor, "check_leftovers", asked.append)
    monkeypatch.setattr(examine.job_doctor, "checks", lambda *_words, **how: asked.append(how["thorough"]) or {})
    examine.examine_here(lambda: Policy(node_number=1), "cn1", thorough=False)
    assert asked == [False]


@pytest.mark.usefixtures("well")
@pytest.mark.parametrize(
    ("load", "message"),
    [(load_broken, "policy: vtorque.yml: line 3: bridge is no name"), (Policy, "policy: node_number is not set: ")],
)
def test_broken_policy_is_a_finding_and_the_rest_is_looked_at(load: t.Callable[[], Policy], message: str) -> None:
    report = examine.examine_here(load, "cn1")
    assert not report.well
    assert report.problems[0].startswith(message)
    assert len(report.findings) == len(CHECKS)


@pytest.mark.parametrize(("default", "looked_for"), [("tiny", "tiny"), ("/srv/all.qcow2", None), (None, None)])
def test_default_image_outside_of_the_pool_is_not_looked_for_in_it(default: str | None, looked_for: str | None) -> None:
    """Each user's own rights open it."""
    assert examine.pool_default(Policy(img_default=default, allow_user_images=True)) == looked_for


def ssh_that(directory: pathlib.Path, script: str) -> str:
    """A program in ssh's place; $node is whom it is called for, $command what is to run there."""
    path = directory / "ssh"
    path.write_text(f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nnode=$2 command=$3\n{script}\n')
    path.chmod(0o755)
    return str(path)


def answer(**changes: t.Any) -> str:
    now = time.time()
    return json.dumps({"ok": True, "report": {**Report("x", (Finding("libvirt"),), now, now).to_dict(), **changes}})


def test_nodes_examine_themselves(tmp_path: pathlib.Path) -> None:
    (tmp_path / "answer").write_text(answer(began=time.time() + 1, ended=time.time() + 1))
    ssh = ssh_that(tmp_path, f'echo "$node $command $(cat)" >>{tmp_path}/asked; cat {tmp_path}/answer; exit 1')
    reported: list[Report] = []
    reports = examine.examine_nodes(
        ["cn1", "cn2"], ssh_timeout_s=5, ssh=ssh, prefix="/opt/here", advance=reported.append
    )
    assert [report.node for report in reports] == ["cn1", "cn2"]
    assert all(report.well for report in reports)
    assert sorted(report.node for report in reported) == ["cn1", "cn2"]
    asked = sorted((tmp_path / "asked").read_text().splitlines())
    question = '{"version": 3, "do": "report", "timeout_s": 20.0}'
    assert asked == [f"{node} /opt/here/bin/vtorque-node {question}" for node in ("cn1", "cn2")]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'ssh: connect to host: Connection refused' >&2; exit 255", "no answer by ssh: ssh: connect to host"),
        ("echo 'vmgr: not found' >&2; exit 127", "no report: vmgr: not found"),
        ("exit 0", "no report: status 0"),
        ('echo \'{"version": 1, "ok": false}\'', "x gave no report: its answer is of no known form"),
        (
            'echo \'{"ok": false, "error": {"what": "NodePart", "why": "unknown key"}}\'',
            "x gave no report: NodePart: unknown key",
        ),
        ('echo \'{"ok": true, "report": {"version": 1}}\'', "x gave no report: is of another version"),
        ("echo '[1]'", "x gave no report: "),
        ("head -c 200000 /dev/zero | tr '\\0' '['", "no report: "),
        ("exec cat /dev/zero", "no report: an answer of more than 1048576 bytes"),
        ("exec cat /dev/zero >&2", "no answer in "),
        ("exec sleep 60", "no answer in "),
    ],
)
def test_node_that_gives_no_report_needs_somebody(tmp_path: pathlib.Path, script: str, message: str) -> None:
    ssh_timeout_s = -24.5 if message == "no answer in " else 20
    (report,) = examine.examine_nodes(["x"], ssh_timeout_s=ssh_timeout_s, ssh=ssh_that(tmp_path, script))
    assert not report.well
    assert not report.asked
    (finding,) = report.findings
    assert (finding.check, finding.state) == ("ssh", BAD)
    assert finding.problem.startswith(message)


@pytest.mark.parametrize("moment", ["began", "ended"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), "nan", 1e300, -1.0])
def test_time_that_no_clock_has_is_no_report(tmp_path: pathlib.Path, moment: str, value: object) -> None:
    (tmp_path / "answer").write_text(answer(**{moment: value}))
    (report,) = examine.examine_nodes(["x"], ssh_timeout_s=20, ssh=ssh_that(tmp_path, f"cat {tmp_path}/answer"))
    assert not report.asked
    assert "a time that no clock has" in report.problems[0]


def test_absurd_name_reaches_no_ssh(tmp_path: pathlib.Path) -> None:
    (report,) = examine.examine_nodes(["-oX=y"], ssh_timeout_s=5, ssh=ssh_that(tmp_path, f": >{tmp_path}/ran"))
    assert not report.well
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("began", "ended", "off"),
    [
        (100.0, 101.0, ""),
        (98.5, 99.5, ""),
        (103.0, 103.9, ""),
        (97.0, 98.0, "3 s behind"),
        (104.0, 105.1, "3 s ahead of"),
        (4000.0, 4001.0, "3899 s ahead of"),
    ],
)
def test_clock_against_ours(began: float, ended: float, off: str) -> None:
    """It was asked at 100 and answered at 102: its own times lie between, or its clock is off."""
    report = examine.check_clock(Report("cn1", (Finding("time"),), began, ended), 100.0, 102.0)
    assert report.well is not bool(off)
    assert f"its clock is {off}" in " ".join(report.problems) or not off
