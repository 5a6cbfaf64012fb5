# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr selftest: whose job, on which nodes, and how it ends."""

from __future__ import annotations

import itertools
import json
import pathlib
import pwd
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import BAD, Finding, Report
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main, selftest

from .run_vmgr import run_vmgr

ALICE = pwd.struct_passwd(("alice", "x", 1001, 1001, "", "/home/alice", "/bin/sh"))
BOB = pwd.struct_passwd(("bob", "x", 1002, 1002, "", "/home/bob", "/bin/sh"))


def node(name: str, states: str = "free", *properties: str) -> BatchNode:
    return BatchNode(name, frozenset({states}), 4, 0, frozenset(properties), "")


class Site:
    """A site whose jobs end as they are told to."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.policy = Policy()
        self.uid = ALICE.pw_uid
        self.became: list[str] = []
        self.reports: dict[str, Report] = {}
        self.interrupted = False
        self.broken = ""
        self.stored: list[str] = []
        self.deleted: list[str] = []
        call = selftest.selftest_call
        patch.setattr(selftest.os, "geteuid", lambda: self.uid)
        patch.setattr(selftest.pwd, "getpwuid", lambda _uid: ALICE)
        patch.setattr(selftest.as_user, "find", lambda name: {"alice": ALICE, "bob": BOB}[name])
        patch.setattr(selftest.as_user, "become", lambda who: self.became.append(who.pw_name))
        patch.setattr(selftest, "open_batch", lambda *_words, **_how: self)
        patch.setattr(selftest, "host_name", lambda: "fe")
        patch.setattr(selftest.signal, "signal", lambda *_words: None)
        patch.setattr(main, "load", lambda _path: self.policy)
        patch.setattr(
            call, "prepare", lambda _home, where, hosts, _job, work: call.Trial(where, hosts, directory / where, work)
        )
        patch.setattr(call, "submit", self.submit)
        patch.setattr(call, "wait", self.wait)
        patch.setattr(call, "take_back", self.take_back)
        patch.setattr(call, "tidy", lambda trials: self.stored.extend(trial.where for trial in trials))
        patch.setattr(call, "report", lambda trial, *_words: (self.reports.get(trial.where, well(trial.where)), None))

    def nodes(self) -> tuple[BatchNode, ...]:
        """As the batch server."""
        return node("cn1", "free", "vm"), node("cn2", "job-exclusive"), node("cn3", "offline", "vm")

    def submit(self, trial: t.Any, _vsub: str, request: str, who: t.Any, **how: t.Any) -> None:
        """As vsub."""
        assert set(self.became) == {who.pw_name}
        if trial.where == self.broken:
            raise UserFault("home", "is full")
        trial.job_id = f"{trial.where}.fe"
        self.asked = (request, who.pw_name, how["queue"])

    def wait(self, trials: t.Sequence[t.Any], _batch: object, _timeout_s: float, _told: object) -> None:
        """As long as it takes."""
        if self.interrupted:
            raise KeyboardInterrupt
        for trial in trials:
            trial.in_time = self.reports.get(trial.where, well(trial.where)).asked

    def take_back(self, trials: t.Sequence[t.Any], _batch: object) -> tuple[str, ...]:
        """As qdel."""
        self.deleted += [trial.job_id for trial in trials if trial.job_id]
        return tuple(self.deleted)


def well(name: str) -> Report:
    return Report(name, (Finding("submitted"), Finding("exit status", cell="23")))


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "property_", "where"),
    [
        ((), None, ["1"]),
        (("--nodes", "3"), None, ["3"]),
        (("--each-node",), None, ["cn1", "cn2"]),
        (("--each-node",), "vm", ["cn1"]),
        (("--node", "cn[2-3]", "cn1"), None, ["cn2", "cn3", "cn1"]),
    ],
)
def test_selftest_runs_on_the_requested_nodes(
    site: Site, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], property_: str | None, where: list[str]
) -> None:
    site.policy = Policy(vm_node_property=property_)
    status, text = run_vmgr(capsys, "selftest", *arguments, "--json")
    assert status == 0
    assert [one["nodes"] for one in json.loads(text)] == [[name] for name in where]
    assert site.stored == where, "directories go"


@pytest.mark.parametrize(
    ("uid", "arguments", "who"),
    [(1001, (), "alice"), (1001, ("--user", "alice"), "alice"), (0, ("--user", "bob"), "bob")],
)
def test_selftest_job_belongs_to_the_requested_user(
    site: Site, capsys: pytest.CaptureFixture[str], uid: int, arguments: tuple[str, ...], who: str
) -> None:
    site.uid = uid
    assert run_vmgr(capsys, "selftest", *arguments, "--image", "debian12", "--queue", "fast")[0] == 0
    assert site.asked == ("img=debian12,vcpus=1,ram=1024M,vms_per_node=1", who, "fast")


@pytest.mark.parametrize(
    ("uid", "arguments", "why"),
    [
        (0, (), "no job is submitted as root"),
        (1001, ("--user", "bob"), "only root"),
        (1001, ("--nodes", "0"), "at least 1"),
        (1001, ("--timeout", "0"), "86400"),
        (1001, ("--repeat", "0"), "from 1 to 1000"),
        (1001, ("--repeat", "1001"), "from 1 to 1000"),
        (1001, ("--workload", "/no/such/file"), "cannot be read as text"),
        (1001, ("--workload", "/dev/null"), "from 1 to 65536 bytes"),
        (1001, ("--workload", "/dev/zero"), "from 1 to 65536 bytes"),
        (1001, ("--figures", "/no/such/directory/file"), "cannot be written by alice"),
        (1001, ("--node", "cn["), "nodes"),
    ],
)
def test_wrong_command_line(site: Site, uid: int, arguments: tuple[str, ...], why: str) -> None:
    site.uid = uid
    with pytest.raises(UserFault, match=why):
        main.run_subject(["selftest", *arguments])
    assert site.stored == []


@pytest.mark.parametrize(
    ("report", "expected", "last"),
    [
        (well("cn1"), 0, "All of it is proven."),
        (Report("cn1", (Finding("exit status", BAD, BAD, "is 1", "look"),)), 1, "Not proven: 1 of 2 jobs."),
        (Report("cn1", (Finding("ended", BAD, "late", "x"),), asked=False), 4, "Not proven: 1 of 2 jobs."),
    ],
)
def test_how_it_ends(
    site: Site, capsys: pytest.CaptureFixture[str], report: Report, expected: int, last: str
) -> None:  # fmt: skip
    site.reports["cn1"] = report
    status, text = run_vmgr(capsys, "selftest", "--each-node")
    assert (status, text.splitlines()[-1]) == (expected, last)


def test_interrupted_it_takes_its_jobs_back(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        main.run_subject(["selftest", "--each-node"])
    assert site.deleted == ["cn1.fe", "cn2.fe"]
    assert "interrupted: deleted: cn1.fe, cn2.fe" in capsys.readouterr().err
    assert site.stored == ["cn1", "cn2"]


def test_fault_takes_jobs_back_too(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """What fails for the second node must not leave the first one's job."""
    site.broken = "cn2"
    with pytest.raises(UserFault, match="is full"):
        main.run_subject(["selftest", "--each-node"])
    assert site.deleted == ["cn1.fe"]
    assert "vmgr: selftest: not done: deleted: cn1.fe\n" in capsys.readouterr().err
    assert site.stored == ["cn1", "cn2"]


def test_fault_before_any_job_is_told_alone(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.broken = "cn1"
    with pytest.raises(UserFault, match="is full"):
        main.run_subject(["selftest", "--each-node"])
    assert capsys.readouterr().err == "vmgr: selftest: left out, as they are not in use for VM jobs: cn3\n"


def test_selftest_repeats_and_sums_up_the_seconds_of_each_phase(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    times = itertools.cycle([1.0, 3.0, 2.0])

    def report(trial: t.Any, expected: t.Any, _records: object) -> tuple[Report, None]:
        assert expected.workload
        trial.workload_s = next(times)
        return well(trial.where), None

    monkeypatch.setattr(selftest.selftest_call, "report", report)
    workload, figures = tmp_path / "app.sh", tmp_path / "figures.json"
    workload.write_text("sleep 1\n", encoding="utf-8")
    arguments = ("--repeat", "3", "--workload", str(workload), "--figures", str(figures))
    status, text = run_vmgr(capsys, "selftest", *arguments)
    assert status == 0
    assert [line.split() for line in text.splitlines() if line.startswith(("least", "median", "most"))] == [
        ["least", "1.0"], ["median", "2.0"], ["most", "3.0"]
    ]  # fmt: skip
    assert json.loads(figures.read_text(encoding="utf-8")) == {
        "selftest_workload_s": 2.0, "selftest_workload_s_runs": [1.0, 3.0, 2.0]
    }  # fmt: skip
    assert site.stored == ["1"] * 3, "directories of all runs go"
    _status, text = run_vmgr(capsys, "selftest", *arguments, "--json")
    assert [one["seconds"] for one in json.loads(text)] == [{"workload": 1.0}, {"workload": 3.0}, {"workload": 2.0}]
    assert [one["figures"] for one in json.loads(text)] == [{"selftest_workload_s": took} for took in (1.0, 3.0, 2.0)]
    status = main.run_subject(["selftest", *arguments, "--query", "avg([].figures.selftest_workload_s)"])
    assert (status, json.loads(capsys.readouterr().out)) == (0, 2.0)


def test_selftest_is_not_repeated_after_a_job_that_was_late(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def wait(trials: t.Sequence[t.Any], *_others: object) -> None:
        for trial in trials:
            trial.in_time = False

    monkeypatch.setattr(selftest.selftest_call, "wait", wait)
    site.reports = {"1": Report("1", (Finding("ended", BAD, "late", "not over"),), asked=False)}
    figures = tmp_path / "figures.json"
    status, text = run_vmgr(capsys, "selftest", "--repeat", "5", "--figures", str(figures))
    assert (status, "Not proven: 1 of 1 jobs." in text) == (selftest.LATE, True)
    assert json.loads(figures.read_text(encoding="utf-8")) == {}, "what was not proven is no figure"
    _status, text = run_vmgr(capsys, "selftest", "--json")
    assert [one["figures"] for one in json.loads(text)] == [{}]
