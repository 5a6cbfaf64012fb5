# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr doctor: whom it examines, what it shows, and how it ends."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import BAD, WARN, Finding, Report
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import doctor, main

from .run_vmgr import run_vmgr

WELL = (Finding("libvirt"), Finding("disk", cell="71%"))
ILL = (Finding("libvirt", BAD, BAD, "is dead", "start it"), Finding("note", WARN, "yes", "fan is loud"))


class Site:
    """Three nodes that were examined, and a configuration."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.reports = {"cn1": Report("cn1", WELL), "cn2": Report("cn2", ILL), "cn3": Report("cn3", WELL)}
        self.front_end = Report("fe", (Finding("server"),))
        self.thorough: list[bool] = []
        self.here = "cn1"
        self.silent = False
        self.torque_home = directory / "torque"
        self.prefix = directory / "vtorque"
        patch.setattr(doctor.os, "geteuid", lambda: 0)
        patch.setattr(doctor, "host_name", lambda: self.here)
        patch.setattr(doctor, "open_batch", lambda *_words, **_how: self)
        patch.setattr(doctor.examine, "examine_here", self.examine_here)
        patch.setattr(doctor.examine, "examine_front_end", lambda *_words: self.front_end)
        patch.setattr(doctor.examine, "judge_together", lambda reports, *_words: reports)
        patch.setattr(doctor.examine, "examine_nodes", lambda names, **_how: tuple(map(self.reports.get, names)))
        patch.setattr(
            main, "load", lambda _path: Policy(torque_home=str(self.torque_home), prefix_nodes=str(self.prefix))
        )

    def examine_here(self, _load: object, node: str, _timeout: float, *, thorough: bool) -> Report:
        """As doctor_call."""
        self.thorough.append(thorough)
        return self.reports[node]

    def nodes(self) -> tuple[BatchNode, ...]:
        """As the batch server."""
        if self.silent:
            raise SiteFault("pbsnodes", "did not answer")
        return tuple(BatchNode(name, frozenset({"free"}), 1, 0, frozenset(), "") for name in self.reports)


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "compute", "nodes"),
    [
        ((), True, ["cn1"]),
        ((), False, ["fe", "cn1", "cn2", "cn3"]),
        (("--local",), False, ["cn1"]),
        (("--all",), True, ["cn1", "cn2", "cn3"]),
        (("--nodes", "cn3,cn2 cn3"), True, ["cn2", "cn3"]),
        (("--node", "cn3", "cn[1-2]"), False, ["cn3", "cn1", "cn2"]),
    ],
)
def test_doctor_examines_the_hosts_that_are_named(
    site: Site, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], compute: bool, nodes: list[str]
) -> None:
    if compute:
        (site.torque_home / "mom_priv").mkdir(parents=True)
        (site.prefix / "bin").mkdir(parents=True)
        (site.prefix / "bin/vtorque-sweep").touch()
    status, text = run_vmgr(capsys, "doctor", *arguments, "--json")
    report = json.loads(text)
    assert [one["node"] for one in (report if isinstance(report, list) else [report])] == nodes
    assert status == (1 if "cn2" in nodes else 0)


@pytest.mark.parametrize("text", ["bridge: br7\n", "brigde: br7\n"])
@pytest.mark.parametrize("arguments", [(), ("--all",)])
def test_configuration_is_opened_once(
    site: Site, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str,
    opened: t.Callable[[pathlib.Path], int],
) -> None:  # fmt: skip
    """Good or not: what was read twice could be two."""
    config = tmp_path / "vtorque.yml"
    config.write_text(text)
    config.chmod(0o644)
    monkeypatch.setattr(main, "load", policy_file.load)
    site.here = "fe"
    main.run_subject(["doctor", *arguments], config)
    assert opened(config) == 1


def test_front_end_with_the_directory_of_a_mom_is_no_node(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Torque's own `make install` makes it on every host."""
    (site.torque_home / "mom_priv").mkdir(parents=True)
    _status, text = run_vmgr(capsys, "doctor", "--json")
    assert [one["node"] for one in json.loads(text)] == ["fe", "cn1", "cn2", "cn3"]


def test_table_and_words(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run_vmgr(capsys, "doctor", "--all")
    lines = text.splitlines()
    assert status == 1
    assert [" ".join(line.split()) for line in lines] == [
        "check nodes found",
        "server fe ok",
        "libvirt cn2 bad is dead",
        "-> start it",
        "cn[1,3] ok",
        "disk cn[1,3] 71%",
        "note cn2 yes fan is loud",
        "1 of 4 hosts needs attention.",
    ]
    assert "\x1b" not in text


def test_all_is_well(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_vmgr(capsys, "doctor", "--nodes", "cn1,cn3")[1].endswith("\nAll 2 hosts are well.\n")
    status, text = run_vmgr(capsys, "doctor", "--local")
    assert (status, text.splitlines()[-1]) == (0, "cn1 is well.")


def test_one_line_for_a_health_check(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_vmgr(capsys, "doctor", "--local", "--brief") == (0, "cn1: ok\n")
    assert site.thorough == [False]
    run_vmgr(capsys, "doctor", "--local")
    assert site.thorough == [False, True]
    site.reports["cn1"] = Report("cn1", ILL)
    assert run_vmgr(capsys, "doctor", "--local", "--brief") == (
        1, "cn1: needs attention; libvirt: is dead (start it); note: fan is loud\n",
    )  # fmt: skip


def test_node_that_could_not_be_asked_has_a_status_of_its_own(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    site.reports["cn3"] = Report("cn3", (Finding("ssh", BAD, "silent", "no answer"),), asked=False)
    status, text = run_vmgr(capsys, "doctor", "--all")
    assert (status, text.splitlines()[-1]) == (4, "2 of 4 hosts need attention. 1 could not be asked.")
    assert run_vmgr(capsys, "doctor", "--node", "cn1")[0] == 0


def test_silent_batch_server_hides_no_node_that_is_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.silent = True
    assert run_vmgr(capsys, "doctor", "--node", "cn1")[0] == 0
    with pytest.raises(SiteFault, match="pbsnodes"):
        main.run_subject(["doctor", "--all"])


def test_part_of_it_can_be_asked_for(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_vmgr(capsys, "doctor", "--all", "--query", "[?!well].node") == (1, '[\n  "cn2"\n]\n')
    with pytest.raises(UserFault, match="--brief"):
        main.run_subject(["doctor", "--brief", "--query", "@"])


@pytest.mark.parametrize(
    "arguments", [("--local", "--all"), ("--brief", "--json"), ("--nodes",), ("--timeout", "soon")]
)
def test_wrong_command_line(site: Site, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.run_subject(["doctor", *arguments])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "why"), [(("--timeout", "0"), "3600"), (("--nodes", ","), "no node"), (("--nodes", ""), "no node")]
)
def test_wrong_value(site: Site, arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(UserFault, match=why):
        main.run_subject(["doctor", *arguments])


def test_only_root_sees_enough(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    with pytest.raises(UserFault, match="only root"):
        main.run_subject(["doctor", "--local"])


def test_completion_knows_its_options() -> None:
    assert "--brief" in main.completion_values("/pool", "/records")["verbs"]["doctor"]
