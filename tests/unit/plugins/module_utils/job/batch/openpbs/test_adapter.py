# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of OpenPBS's adapter no other system has: its orders, its shell, its node file, its checks."""

from __future__ import annotations

import json
import os
import pathlib
import re
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import registry
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.openpbs import (
    answers,
    doctor_checks,
    hook_calls,
    job_shell,
    mom_files,
    owner_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.doctor import node_checks

from ..contract.material import FIXTURES
from ..contract.openpbs_material import OpenPbsMaterial

RELEASE = FIXTURES / "openpbs/release-23.06.06"
HK = (RELEASE / "vtorque.HK").read_text()
RESOURCE = (RELEASE / "qmgr-print-resource.txt").read_text()


@pytest.fixture
def material(tmp_path: pathlib.Path) -> OpenPbsMaterial:
    return OpenPbsMaterial(tmp_path)


def install_hook(policy: Policy, *, alarm: object = 310, without: str = "", recorded: str = HK) -> pathlib.Path:
    """The server's copy of our hook on this node, with another alarm, or without an event."""
    place = pathlib.Path(policy.torque_home) / "mom_priv/hooks"
    place.mkdir(exist_ok=True)
    (place / "vtorque.PY").write_text(doctor_checks.expected_hook(policy.prefix_nodes))
    settings = re.sub(rf"\b{without},?", "", recorded) if without else recorded
    (place / "vtorque.HK").write_text(settings.replace("alarm=310", f"alarm={alarm}"))
    return place


def answer(material: OpenPbsMaterial, tool: str, script: str) -> None:
    (material.place / "bin" / tool).write_text(f"#!/bin/sh\n{script}")
    (material.place / "bin" / tool).chmod(0o755)


@pytest.mark.parametrize("order", ["hold", "delete"])
def test_order_that_needs_an_operator_is_a_fault_with_the_servers_own_text(
    material: OpenPbsMaterial, order: str
) -> None:
    for tool in ("qhold", "qdel"):  # recorded: root of a node is none
        answer(material, tool, f'echo "{tool}: Unauthorized Request  0.p0" >&2; exit 159\n')
    batch = registry.open_batch(material.policy)
    with pytest.raises(SiteFault, match="Unauthorized Request"):
        getattr(batch, order)("0.p0")


@pytest.mark.parametrize("status", [153, 35])
def test_job_that_is_unknown_or_over_is_no_silence(material: OpenPbsMaterial, status: int) -> None:
    answer(material, "qstat", f'echo "qstat: 7.p0" >&2; exit {status}\n')
    with pytest.raises(UnknownJob):
        registry.open_batch(material.policy).job("7.p0")


def test_comment_is_one_plain_word_for_qalter(material: OpenPbsMaterial) -> None:
    registry.open_batch(material.policy).comment("0.p0", "vtorque: held: a,b='c'\nd" + "x" * 500)
    (order,) = material.read_orders()
    assert order.startswith("qalter -W comment=vtorque: held: a b c d")
    assert len(order) < 260


def test_members_of_arrays_are_among_all_jobs(material: OpenPbsMaterial) -> None:
    answer(material, "qstat", f'echo "$*" >{material.place}/asked; cat {FIXTURES}/openpbs/qstat-f.json\n')
    assert [job.job_id for job in registry.open_batch(material.policy).all_jobs()] == ["0.p0"]
    assert (material.place / "asked").read_text() == "-t -f -F json\n"
    answer(material, "qstat", "exit 0\n")
    assert registry.open_batch(material.policy).all_jobs() == ()


@pytest.mark.parametrize(
    ("alarm", "seconds"), [(30, 30), (310, 310), ("", 30), ("0", 30), ("-7", 30), ("9999999", 30), ("5; x", 30)]
)
def test_alarm_of_the_hook_is_what_the_servers_copy_says(
    material: OpenPbsMaterial, alarm: object, seconds: int
) -> None:
    assert hook_calls.hook_limits(material.policy).seconds == 30, "OpenPBS's own default"
    install_hook(material.policy, recorded=(RELEASE / "vtorque-alarm-unset.HK").read_text())
    assert hook_calls.hook_limits(material.policy).seconds == 30, "the server writes no line of it"
    install_hook(material.policy, alarm=alarm)
    limits = hook_calls.hook_limits(material.policy)
    assert limits.seconds == seconds
    assert limits.setting.endswith(f" {seconds}")


def test_doctor_compares_the_alarm_with_the_time_that_a_start_may_take(material: OpenPbsMaterial) -> None:
    policy = material.policy
    install_hook(policy, alarm=30)
    finding = node_checks.check_alarm(policy, hook_calls.hook_limits(policy))
    assert finding.state == "bad"
    assert "set hook vtorque alarm = " in finding.remedy
    install_hook(policy, alarm=policy.prologue_timeout + 60)
    assert node_checks.check_alarm(policy, hook_calls.hook_limits(policy)).state == "ok"


def test_doctor_looks_at_the_servers_copy_of_the_hook(material: OpenPbsMaterial) -> None:
    policy, uid = material.policy, os.getuid()

    def look(owner_uid: int = uid) -> t.Any:
        return doctor_checks.node_checks(policy, "p1", owner_uid=owner_uid, thorough=True)["hooks"]()

    assert "no hook vtorque" in look().problem
    place = install_hook(policy)
    assert look().state == "ok"
    assert look(uid + 1).state == "bad"
    for event in doctor_checks.EVENTS:
        install_hook(policy, without=event)
        assert look().problem.endswith(f"not called at {event}")
    install_hook(policy)
    (place / "vtorque.PY").write_text("import pbs\n")
    assert (look().state, "not of the version" in look().problem) == ("warn", True)
    install_hook(policy, recorded=(RELEASE / "vtorque-disabled.HK").read_text())
    assert "not enabled" in look().problem


@pytest.mark.parametrize(
    ("flag", "operators", "state"),
    [("m", "root@*", "ok"), ("hm", "root@p1", "warn"), ("h", "root@*", "bad"), ("", "", "bad")],
)
def test_doctor_looks_at_the_resource_and_at_the_operators(
    material: OpenPbsMaterial, flag: str, operators: str, state: str
) -> None:
    (material.place / "resource").write_text(RESOURCE.replace("flag = m", f"flag = {flag}"))
    (material.place / "server").write_text(f"set server operators = {operators}\n")
    answer(material, "qmgr", f"set -- $2\ncat {material.place}/$2\n")
    finding = doctor_checks.check_server(registry.open_batch(material.policy), ["p1", "p2"])
    assert finding.state == state
    assert ("p2" in finding.problem) == ("does not say why" in finding.problem) == (state == "warn")
    assert ("operators += root@p2" in finding.remedy) == (state == "warn")
    answer(material, "qmgr", "exit 1\n")
    assert doctor_checks.check_server(registry.open_batch(material.policy), []).state == "warn"


def test_doctor_reads_the_operators_as_the_server_lists_them(material: OpenPbsMaterial) -> None:
    answer(material, "qmgr", f"set -- $2\ncat {RELEASE}/qmgr-print-$2.txt\n")
    batch = registry.open_batch(material.policy)
    assert batch.server().operators == ("root@cn2", "root@cn1")
    assert doctor_checks.check_server(batch, ["cn1", "cn2"]).problem == ""
    assert "root is no operator on cn3:" in doctor_checks.check_server(batch, ["cn1", "cn2", "cn3"]).problem


def test_doctor_finds_nodes_that_see_no_job(material: OpenPbsMaterial) -> None:
    """Root of a node that is no operator reads an answer without any job then (23.06.06)."""
    script = f"set -- $2\nsed 's/query_other_jobs = True/query_other_jobs = False/' {RELEASE}/qmgr-print-$2.txt\n"
    answer(material, "qmgr", script)
    batch = registry.open_batch(material.policy)
    assert doctor_checks.check_server(batch, ["cn1", "cn2"]).state == "ok"
    finding = doctor_checks.check_server(batch, ["cn2", "cn3"])
    assert (finding.state, "on cn3: as query_other_jobs is False" in finding.problem) == ("bad", True)
    assert "operators += root@cn3" in finding.remedy


def test_node_file_has_a_line_for_each_process_of_mpi() -> None:
    hosts = ["p1"] * 8 + ["p2"] * 8
    for content in ("p1\np2\n", "p1\np1\np2\n", "p1.example.org\np2.example.org\n"):
        mom_files.check_node_file(content, hosts)
    for content in ("p2\np1\n", "p1\n", "p1\np2\np3\n"):
        with pytest.raises(UserFault, match="not the batch server's"):
            mom_files.check_node_file(content, hosts)


def test_variables_of_a_member_of_an_array_are_openpbss_own() -> None:
    data = (FIXTURES / "openpbs/qstat-f.json").read_bytes().replace(b'"0.p0":', b'"4[1].p0":')
    known = job_shell.variables_of_root(answers.parse_job(data, "4[1].p0"), Policy(torque_home="/var/spool/pbs"))
    assert (known["PBS_ARRAY_INDEX"], known["PBS_ARRAY_ID"]) == ("1", "4[].p0")
    assert known["PBS_NODEFILE"] == "/var/spool/pbs/aux/4[1].p0"
    assert not {"PBS_NP", "PBS_NUM_NODES", "PBS_NUM_PPN", "PBS_VNODENUM", "PBS_ARRAYID"} & set(known)
    recorded = {name.decode(): value.decode() for name, value in OpenPbsMaterial.environment.items()}
    whole = job_shell.variables_of_root(
        answers.parse_job((FIXTURES / "openpbs/qstat-f.json").read_bytes(), "0.p0"),
        Policy(torque_home="/var/spool/pbs"),
    )
    assert {name: recorded.get(name) for name in whole} == whole


def test_way_to_the_mom_stays_on_the_node() -> None:
    assert {b"PBS_JOBCOOKIE", b"PBS_MOMPORT", b"TMPDIR"} <= set(job_shell.NODE_PATHS) & set(OpenPbsMaterial.environment)


def test_shell_takes_no_arguments(material: OpenPbsMaterial) -> None:
    with pytest.raises(VTorqueError, match="arguments"):
        job_shell.read_script(["-c", "true"])


NOTED = {"job": "1.fe", "start": "1", "user": "alice", "group": "HPC Users"}


def hide_owner(material: OpenPbsMaterial) -> None:
    """Have the server answer root of a node, who is no manager."""
    answer(material, "qstat", f"cat {RELEASE}/qstat-f-operator.json\n")


def test_user_whom_the_server_hides_is_the_one_of_this_nodes_mom(
    material: OpenPbsMaterial, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_owner(material)
    monkeypatch.setattr(owner_file, "PLACE", material.place)
    batch = registry.open_batch(material.policy)
    assert (batch.job("1.fe").euser, batch.job("1.fe").owner_user) == ("", "alice"), "no guess by who submitted it"
    noted = material.place / "owner.1.fe.1"
    noted.write_text(json.dumps(NOTED))
    assert (batch.job("1.fe").euser, batch.job("1.fe").egroup) == ("alice", "HPC Users")


@pytest.mark.parametrize(
    "content",
    [{**NOTED, "job": "0.fe"}, {**NOTED, "start": "2"}, {**NOTED, "user": "al ice"}, {**NOTED, "user": ""},
     {**NOTED, "group": ""}, {"job": "1.fe", "start": "1"}, [], "x"],
)  # fmt: skip
def test_note_of_another_form_names_no_user(
    material: OpenPbsMaterial, monkeypatch: pytest.MonkeyPatch, content: object
) -> None:
    hide_owner(material)
    monkeypatch.setattr(owner_file, "PLACE", material.place)
    (material.place / "owner.1.fe.1").write_text(json.dumps(content))
    with pytest.raises(SiteFault, match="its user"):
        registry.open_batch(material.policy).job("1.fe")


@pytest.mark.parametrize("forge", [lambda path: path.chmod(0o622), lambda path: os.chown(path, 65534, 0)])
def test_note_that_others_could_write_is_not_believed(
    material: OpenPbsMaterial, monkeypatch: pytest.MonkeyPatch, forge: t.Callable[[pathlib.Path], None]
) -> None:
    hide_owner(material)
    monkeypatch.setattr(owner_file, "PLACE", material.place)
    noted = material.place / "owner.1.fe.1"
    noted.write_text(json.dumps(NOTED))
    forge(noted)
    with pytest.raises(SiteFault, match="not believed"):
        registry.open_batch(material.policy).job("1.fe")


def test_note_goes_with_its_start_where_no_hook_heard_of_the_end(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook that an administrator disables is called at no end of a job (seen on 23.06.06)."""
    monkeypatch.setattr(owner_file, "PLACE", tmp_path)

    def is_over(job_id: str, start: int) -> bool:
        if job_id == "9.fe":
            raise SiteFault("job 9.fe", "the batch server is silent")
        return (job_id, start) in {("1.fe", 1), ("5[1].fe", 2), ("2.fe", 1)}

    others = ["answer.x1", "3.fe", "owner.odd"]
    for name in (*others, "owner.1.fe.1", "owner.1.fe.2", "owner.5-1.fe.2", "owner.9.fe.1", "owner.2.fe.1"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / "owner.2.fe.1").touch()  # just now: the server may be late
    mom_files.remove_notes(is_over)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([*others, "owner.1.fe.2", "owner.9.fe.1", "owner.2.fe.1"])
    monkeypatch.setattr(owner_file, "PLACE", tmp_path / "none")
    mom_files.remove_notes(is_over)
