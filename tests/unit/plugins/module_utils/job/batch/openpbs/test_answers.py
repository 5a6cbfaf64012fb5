# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded answers of OpenPBS, and what somebody could make of them."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import re
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.liveness import is_suspended, start_lives
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.openpbs import answers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.vm_job import is_marked, vm_job_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/openpbs"
RECORDED = (FIXTURES / "qstat-f.json").read_bytes()
RELEASE = FIXTURES / "release-23.06.06"
NODES = (FIXTURES / "pbsnodes-a.json").read_bytes()


def jobs(**others: t.Any) -> bytes:
    """The recorded answer with more jobs in it, or with the recorded one changed (`job_0`)."""
    answer = json.loads(RECORDED)
    answer["Jobs"]["0.p0"].update(others.pop("job_0", {}))
    answer["Jobs"].update(others)
    return json.dumps(answer).encode()


def test_recorded_job_is_read() -> None:
    job = answers.parse_job(RECORDED, "0.p0")
    assert (job.name, job.owner_user, job.owner_host, job.euser, job.egroup) == (
        "envy",
        "alice",
        "p0",
        "alice",
        "alice",
    )
    assert (job.state, job.exit_status, job.start_count, job.queue, job.account) == ("C", 37, 1, "workq", "acct1")
    assert job.slot_hosts == ("p1", "p1", "p2", "p2")
    assert (job.init_work_dir, job.variables["FOO"]) == ("", "bar"), "it starts in its user's home"
    assert job.submit_args == "-v FOO=bar -A acct1 pbs.sh"
    assert (job.hold_types, job.interactive, job.node_exclusive, job.preface) == ("n", False, False, "")
    assert job.resource_list["select"] == "2:ncpus=2:mpiprocs=2"
    moment = datetime.datetime(2026, 11, 25, 13, 21, 49).astimezone()
    assert job.started_s == moment.timestamp()
    assert not is_marked(job)
    assert not start_lives(job, 1, "p1")


def test_request_travels_in_the_resource() -> None:
    wire = Request().encode()
    job = answers.parse_job(
        jobs(job_0={"Resource_List": {"vtorque": wire, "other": "vtorque", "place": "pack:excl"}}), "0.p0"
    )
    assert is_marked(job)
    found = vm_job_of(job)
    assert found is not None
    assert found.request == Request()
    assert job.node_exclusive
    assert "vtorque" not in job.resource_list, "it is long, and stands in x"
    for text in ("mine", "", "x;vtorque:abc", "Vtorque:abc"):
        strange = answers.parse_job(jobs(job_0={"Resource_List": {"vtorque": text, "other": "vtorque"}}), "0.p0")
        assert not is_marked(strange)
        assert vm_job_of(strange) is None


def test_numbers_are_read_as_the_text_that_stands_there() -> None:
    """OpenPBS writes a name that looks like a number as one."""
    data = RECORDED.replace(b'"envy"', b"1e5").replace(b'"acct1"', b"0012.50").replace(b'"bar"', b"9" * 400)
    with pytest.raises(SiteFault, match="no JSON"):
        answers.parse_job(data, "0.p0")  # what no JSON may hold is no number either
    job = answers.parse_job(data.replace(b"0012.50", b"12.50"), "0.p0")
    assert (job.name, job.account, job.variables["FOO"]) == ("1e5", "12.50", "9" * 400)
    job = answers.parse_job(RECORDED.replace(b'"envy"', b"true"), "0.p0")
    assert job.name == "True"


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("p1/0*2+p2/0*2", ("p1", "p1", "p2", "p2")),
        ("p1/0", ("p1",)),
        ("p1/0+p1/1*2", ("p1",) * 3),
        ("p1:15002/0*2+p2:15002/1", ("p1", "p1", "p2")),
        ("n-1.example.org/3*0", ("n-1.example.org",)),
        ("", ()),
    ],
)
def test_exec_host_is_read(text: str, hosts: tuple[str, ...]) -> None:
    assert answers.parse_exec_host(text) == hosts


@pytest.mark.parametrize(
    "text",
    ["p1", "p1/0*", "p1/x", "p1/0*2+", "+p1/0", "../x/0", "p1/0*999999+p1/0*999999", "p1;x/0", "p1/0-1", "p1/0\n"],
)
def test_exec_host_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(SiteFault, match="exec_host"):
        answers.parse_exec_host(text)


ODD: tuple[dict[str, t.Any], ...] = (
    {"job_state": ["R"]}, {"job_state": "R", "exec_host": "../x"}, {"job_state": "R", "run_count": "many"},
    {"job_state": "R", "Resource_List": "x"}, {"job_state": "R", "Variable_List": {"A": {"B": "C"}}},
    {"job_state": "R", "Job_Owner": None, "session_id": -1.5, "Resource_List": {"walltime": "soon"}}, {},
)  # fmt: skip


@pytest.mark.parametrize("form", [*ODD, [], "x", None, 7])
def test_odd_job_of_somebody_breaks_no_other_and_keeps_its_node(form: t.Any) -> None:
    odd = "7.p0"
    data = jobs(**{odd: form}, job_0={"job_state": "R"})
    assert answers.parse_job(data, "0.p0").euser == "alice"
    found = {job.job_id: job for job in answers.parse_jobs(data)}
    assert set(found) == {"0.p0", odd}
    assert found["0.p0"].nodes == ("p1", "p2")
    if form in (*ODD[:-1], [], "x", None, 7):
        assert (found[odd].state, found[odd].nodes) == ("R", ())
        with pytest.raises(SiteFault):
            answers.parse_job(data, odd)


def test_odd_job_that_waits_takes_nothing() -> None:
    data = jobs(**{"7.p0": {"job_state": "H", "run_count": "many", "Resource_List": {"vtorque": "vtorque:abc"}}})
    odd = answers.parse_jobs(data)[1]
    assert (odd.state, odd.x, is_marked(odd)) == ("H", "vtorque:abc", True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"run_count":\t1,', b'"run_count":\t1, "run_count": 7,'),
        (b'"euser":\t"alice"', b'"euser":\t"alice", "euser": "root"'),
        (b'"0.p0":\t{', b'"0.p0": {"euser": "root"}, "0.p0":\t{'),
        (b'"mpiprocs":\t4,', b'"vtorque": "vtorque:a", "vtorque": "vtorque:b",'),
        (b'"Jobs":', b'"Jobs": {}, "Jobs":'),
    ],
)
def test_fact_that_stands_twice_is_refused(old: bytes, new: bytes) -> None:
    assert RECORDED.count(old) == 1
    with pytest.raises(SiteFault):
        answers.parse_job(RECORDED.replace(old, new), "0.p0")


def test_variable_that_a_user_gave_twice_is_theirs() -> None:
    data = RECORDED.replace(b'"FOO":\t"bar"', b'"FOO": "bar", "FOO": "baz"')
    assert answers.parse_job(data, "0.p0").variables["FOO"] == "baz"


def test_text_of_users_is_only_text() -> None:
    hostile = 'x"}, "9.p0": {"euser": "root"\n\x1b[2J\\'
    data = jobs(job_0={"Job_Name": hostile, "comment": hostile}).replace(b"\\n", b"\n").replace(b"\\u001b", b"\x1b")
    job = answers.parse_job(data, "0.p0")
    assert job.name == job.comment == hostile
    assert len(answers.parse_jobs(data)) == 1
    broken = data.replace(b"envy", b"\xff\xfe")
    assert answers.parse_job(broken, "0.p0").euser == "alice"


def test_text_before_an_answer_is_passed_over_and_quoted() -> None:
    job = answers.parse_job(b"warning: {old} client\n" + RECORDED, "0.p0")
    assert (job.preface, job.euser) == ("warning: {old} client", "alice")


@pytest.mark.parametrize(
    "data", [b"", b"no", b"[]", b'{"Jobs": []}', b'{"Jobs": "x"}', b'{"Jobs": {}} x', b"[" * 100_000]
)
def test_answer_of_another_form_is_a_fault(data: bytes) -> None:
    with pytest.raises(SiteFault) as raised:
        answers.parse_job(data, "0.p0")
    assert not isinstance(raised.value, UnknownJob)


def test_answer_without_jobs_knows_none() -> None:
    assert answers.parse_jobs(b'{"pbs_server": "p0"}') == ()
    with pytest.raises(UnknownJob):
        answers.parse_job(b'{"pbs_server": "p0"}', "0.p0")


@pytest.mark.parametrize(
    ("letter", "lives"), [("R", True), ("E", True), ("S", True), ("U", True), ("Q", False), ("H", False), ("B", False),
                          ("F", False), ("X", False), ("M", False)],
)  # fmt: skip
def test_state_tells_whether_a_start_lives(letter: str, lives: bool) -> None:
    assert start_lives(answers.parse_job(jobs(job_0={"job_state": letter}), "0.p0"), 1, "p1") is lives


def test_recorded_nodes_are_read() -> None:
    first, second = answers.parse_nodes(NODES)
    assert (first.name, first.slots, first.memory_mib, first.states) == ("p1", 2, 24105, frozenset({"free"}))
    assert (second.name, second.note, second.jobs, second.offline) == ("p2", "", frozenset(), False)


def test_jobs_of_nodes_are_read_as_the_release_writes_them() -> None:
    recorded = answers.parse_nodes((RELEASE / "pbsnodes-a-jobs.json").read_bytes())
    assert [(node.name, node.jobs) for node in recorded] == [("cn1", {"1.fe"}), ("cn2", {"1.fe"})]
    jobs_of_text = re.findall(r"jobs = (.+)", (RELEASE / "pbsnodes-a-jobs.txt").read_text())
    assert jobs_of_text == ["1.fe/0, 1.fe/1"] * 2
    answer = json.loads((RELEASE / "pbsnodes-a-jobs.json").read_bytes())
    for node, text in zip(answer["nodes"].values(), jobs_of_text, strict=True):
        node["jobs"] = text
    assert answers.parse_nodes(json.dumps(answer).encode()) == recorded


def test_operator_reads_all_of_a_job_but_as_whom_it_runs() -> None:
    operator, manager = (
        answers.parse_job((RELEASE / f"qstat-f-{who}.json").read_bytes(), "1.fe") for who in ("operator", "manager")
    )
    assert (manager.euser, manager.egroup) == ("alice", "alice")
    assert operator == dataclasses.replace(manager, euser="", egroup="")


def test_suspended_job_lives_on_its_nodes() -> None:
    job = answers.parse_job((RELEASE / "qstat-f-suspended.json").read_bytes(), "2.fe")
    assert (job.state, job.nodes, is_suspended(job, 1), start_lives(job, 1, "cn2")) == ("S", ("cn1", "cn2"), True, True)


def test_node_with_jobs_note_and_a_resource_of_the_sites() -> None:
    answer = json.loads(NODES)
    answer["nodes"]["p1"].update(state="offline,job-busy", comment="vtorque: x", jobs=["0.p0", "4[1].p0", "0.p0"])
    answer["nodes"]["p1"]["resources_available"]["vm"] = "True"
    answer["nodes"]["p2"]["jobs"] = "0.p0/0, 0.p0/1, 7.p0/2"  # as the server has it, and pbsnodes without -F json
    first, second = answers.parse_nodes(json.dumps(answer).encode())
    assert (first.offline, first.note, first.properties) == (True, "vtorque: x", frozenset({"vm"}))
    assert first.jobs == {"0.p0", "4[1].p0"}
    assert second.jobs == {"0.p0", "7.p0"}


@pytest.mark.parametrize(
    "facts", [{"jobs": 7}, {"jobs": [7]}, {"jobs": ["x"]}, {"jobs": ["0.p0/x"]}, {"jobs": ["0.p0 7.p0"]},
              {"jobs": {"0.p0": 1}}, {"resources_available": {"ncpus": "x"}}, {"state": []},
              {"resources_available": {"mem": "much"}}],
)  # fmt: skip
def test_node_of_another_form_is_a_fault(facts: dict[str, t.Any]) -> None:
    answer = json.loads(NODES)
    answer["nodes"]["p2"].update(facts)
    with pytest.raises(SiteFault):
        answers.parse_nodes(json.dumps(answer).encode())
