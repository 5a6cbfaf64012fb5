# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only a look at the whole site tells."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import doctor_checks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import server_settings as server
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import comparison
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import PARAMETERS, Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.doctor import site_checks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import Finding, Report

PRINTED = """\
#
# Set server attributes.
#
set server scheduling = True
set server managers = root@fe
set server operators = root@cn1
set server operators += root@cn2.site
set server query_other_jobs = True
"""


class Server:
    """A batch server that says how it is set."""

    def __init__(self, printed: str | None) -> None:
        self.printed = printed

    def server(self) -> server.ServerSettings:
        """As BatchSystem."""
        if self.printed is None:
            raise SiteFault("qmgr", "did not answer")
        return server.parse(self.printed)


def look(printed: str | None, *nodes: str) -> Finding:
    return doctor_checks.check_server(t.cast("t.Any", Server(printed)), nodes or ("cn1", "cn2"))


def test_server_whose_commands_write_text_before_their_answers_gets_a_word() -> None:
    found = doctor_checks.check_server(t.cast("t.Any", Server(PRINTED)), ("cn1", "cn2"), "busy today")
    assert (found.state, found.cell) == ("warn", "ok")
    assert found.problem.endswith("which is not read: busy today")


@pytest.mark.parametrize(
    ("printed", "state", "message"),
    [
        (PRINTED, "ok", ""),
        (PRINTED.replace("root@cn2.site", "root@*"), "ok", ""),
        (PRINTED.replace("root@cn2.site", "bob@cn2"), "bad", "root is no operator on cn2: "),
        (PRINTED.replace("query_other_jobs = True", "query_other_jobs = False"), "bad", "query_other_jobs is not True"),
        ("set server operators = root@*\n", "bad", "query_other_jobs is not True"),
        (PRINTED + "set server managers += root@cn1\n", "warn", "root of cn1 is a manager"),
        (PRINTED + "set server down_on_error = False\n", "warn", "down_on_error is False"),
        (None, "warn", "it does not tell how it is set: qmgr"),
    ],
)
def test_settings_of_the_batch_server(printed: str | None, state: str, message: str) -> None:
    finding = look(printed)
    assert finding.state == state
    assert finding.problem.startswith(message)
    assert bool(finding.remedy) is (state != "ok")


@pytest.mark.parametrize(
    ("who", "host", "lets"),
    [
        ("root@cn1", "cn1", True),
        ("root@cn1.site", "cn1", True),
        ("root@cn1", "cn10", False),
        ("bob@cn1", "cn1", False),
        ("*@cn1", "cn1", True),
        ("root@*", "cn1", True),
        ("root@cn*", "cn12", True),
        ("root@*.site", "cn1.site", True),
        ("root@*.site", "cn1", True),
        ("root@*.site", "cn1.other", False),
        ("root@", "cn1", False),
    ],
)
def test_root_entry_matches_the_hosts_that_it_names(who: str, host: str, lets: bool) -> None:
    assert server.lets_root([who], host) is lets


def test_place_of_records(tmp_path: pathlib.Path) -> None:
    mine = os.getuid()

    def found(host: str | None, directory: pathlib.Path = tmp_path) -> str:
        return site_checks.check_records(Policy(record_host=host), "fe", directory, mine).state

    tmp_path.chmod(0o755)
    assert found("fe.site") == found("other") == "ok"
    assert found(None) == "none"
    assert found("fe", tmp_path / "gone") == "ok"
    (tmp_path / "file").write_text("")
    assert found("fe", tmp_path / "file") == found("fe", tmp_path / "file" / "below") == "bad"
    tmp_path.chmod(0o775)
    assert found("fe") == "bad"


OURS = comparison.digests(Policy())


@pytest.mark.parametrize(
    ("theirs", "state", "message"),
    [
        (Policy(node_number=7), "ok", ""),
        (Policy(node_number=7, bridge="br9"), "warn", "other than on fe: bridge"),
        (Policy(vcpus_default=3, bridge="br9", timeout=9), "bad", "other than on fe: timeout, vcpus_default"),
    ],
)
def test_configurations_beside_each_other(theirs: Policy, state: str, message: str) -> None:
    """Values stay where they are."""
    report = Report("cn1", (), settings=comparison.digests(theirs), collection="1-a")
    compared = site_checks.compare(report, OURS, "1-a", "fe")
    found = compared.finding("configuration")
    assert found is not None
    assert (found.state, found.problem) == (state, message)
    same = compared.finding("collection")
    assert same == Finding("collection", cell="1-a")


def test_collections_beside_each_other() -> None:
    found = site_checks.compare(Report("cn1", (), settings=OURS), OURS, "1-a", "fe").finding("collection")
    assert found is not None
    assert (found.state, found.problem) == ("bad", "is not known, and on fe 1-a")
    found = site_checks.compare(Report("cn1", (), settings=OURS), OURS, "", "fe").finding("collection")
    assert found is not None
    assert (found.state, found.problem) == ("bad", "is not known, and on fe not known")


def test_parameter_that_one_version_lacks_differs() -> None:
    assert comparison.differing({"a": "1", "bridge": "2"}, {"a": "1", "b": "1"}) == (("b",), ("bridge",))


def test_machine_parameters_are_all_known() -> None:
    assert {*PARAMETERS} >= comparison.MACHINES | comparison.EACH_ITS_OWN
    assert "node_number" not in OURS


NODE = BatchNode("cn1", frozenset({"down", "offline"}), 4, 0, frozenset(), "")


@pytest.mark.parametrize(
    ("node", "state", "message"),
    [
        (NODE, "warn", "the batch server says down,offline"),
        (dataclasses.replace(NODE, note="fan"), "warn", "the batch server says down,offline: fan"),
        (dataclasses.replace(NODE, note="vtorque: disk: full (job 1.fe)"), "bad", "vtorque: disk: full (job 1.fe)"),
        (dataclasses.replace(NODE, states=frozenset({"free"})), "warn", "the batch server says that it is in use"),
    ],
)
def test_word_on_a_node_that_is_silent(node: BatchNode, state: str, message: str) -> None:
    silent = Report("cn1", (Finding("ssh", "bad", "silent"),), asked=False)
    found = site_checks.add_server_state(silent, node).finding("note")
    assert found is not None
    assert (found.state, found.problem) == (state, message)
    assert site_checks.compare(silent, OURS, "1-a", "fe") == silent
    assert site_checks.add_server_state(Report("cn1", ()), node) == Report("cn1", ())
    assert site_checks.add_server_state(silent, None) == silent


@pytest.mark.parametrize(
    ("regex_fe", "parameter"), [("fe", "pbs_qsub_on_fe"), (None, "pbs_qsub_on_fe"), ("login[0-9]", "pbs_qsub_on_nodes")]
)
def test_qsub_that_vsub_calls_on_this_host(tmp_path: pathlib.Path, regex_fe: str | None, parameter: str) -> None:
    qsub = tmp_path / "qsub"
    policy = dataclasses.replace(Policy(), regex_fe=regex_fe or Policy().regex_fe, **{parameter: str(qsub)})
    absent = site_checks.check_qsub(policy, "fe")
    assert (absent.state, absent.problem, absent.remedy) == (
        "bad", f"vsub finds no {qsub}: nobody can submit here", f"correct {parameter}",
    )  # fmt: skip
    qsub.write_text("#!/bin/sh\n")
    qsub.chmod(0o755)
    assert site_checks.check_qsub(policy, "fe").state == "ok"


def test_sbatch_that_is_called_on_a_site_with_slurm(tmp_path: pathlib.Path) -> None:
    policy = dataclasses.replace(Policy(), batch_system="slurm", pbs_qsub_on_fe=str(tmp_path / "qsub"))
    (tmp_path / "qsub").touch(0o755)
    absent = site_checks.check_qsub(policy, "fe")
    assert (absent.state, absent.problem) == ("bad", f"vsub finds no {tmp_path}/sbatch: nobody can submit here")
    (tmp_path / "sbatch").touch(0o755)
    assert site_checks.check_qsub(policy, "fe").state == "ok"
