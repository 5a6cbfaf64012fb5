# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of Torque's commands are read, or refused as the site's: recorded ones, damaged ones, and any bytes."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import answers
from hypothesis import given, settings
from hypothesis import strategies as st

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/torque"


RUNNING = (FIXTURES / "qstat-x-f-array-member-running.xml").read_bytes()


COMPLETE = (FIXTURES / "qstat-x-f-complete-2-nodes.xml").read_bytes()


@pytest.mark.parametrize(
    ("file", "job_id", "facts"),
    [
        (
            "qstat-x-f-complete-2-nodes.xml",
            "11.th",
            {
                "name": "fx", "owner_user": "alice", "owner_host": "th", "euser": "alice", "egroup": "alice",
                "state": "C", "queue": "batch", "slot_hosts": ("t2", "t2", "t1", "t1"), "nodes": ("t2", "t1"),
                "start_count": 1, "x": "vtorque:eyJ2IjoxfQ", "jobtype": "", "init_work_dir": "/home/alice",
                "session_id": 91, "substate": 59, "interactive": False, "walltime_s": 600, "account": "",
                "hold_types": "n",
            },
        ),
        (
            "qstat-x-f-array-member-running.xml",
            "12[1].th",
            {"name": "arr-1", "state": "R", "nodes": ("t1",), "start_count": 1, "substate": 42, "walltime_s": 3600},
        ),
        (
            "qstat-x-f-held.xml",
            "13.th",
            {"state": "H", "hold_types": "u", "slot_hosts": (), "start_count": 0, "session_id": 0, "x": ""},
        ),
        ("qstat-x-f-array-parent.xml", "2.th", {"name": "STDIN", "interactive": True, "x": "vtorque:abc"}),
        ("qstat-x-f-array-parent.xml", "0.th", {"name": "invm", "interactive": False}),
    ],
)  # fmt: skip
def test_recorded_job_is_read(file: str, job_id: str, facts: dict[str, t.Any]) -> None:
    job = answers.parse_job((FIXTURES / file).read_bytes(), job_id)
    assert {name: getattr(job, name) for name in facts} == facts


def test_variables_and_resources_of_a_recorded_job() -> None:
    job = answers.parse_job(COMPLETE, "11.th")
    assert (job.variables["A"], job.variables["B"], job.variables["PBS_O_HOST"]) == ("1", "two", "th")
    assert job.resource_list["nodes"] == "2:ppn=2"


def test_job_that_the_answer_does_not_hold_is_unknown() -> None:
    with pytest.raises(UnknownJob):
        answers.parse_job(COMPLETE, "1.th")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("t1/0", ("t1",)),
        ("node2/0+node1/0", ("node2", "node1")),
        ("t2/0-1+t1/0-1", ("t2", "t2", "t1", "t1")),
        ("n1.hpc.example/0,2-3+n1.hpc.example/5", ("n1.hpc.example",) * 4),
        # a node again after others, and one whose name begins with another's
        ("n1/0-1+n10/0+n2/0+n10/1-2", ("n1", "n1", "n10", "n2", "n10", "n10")),
        ("n10.site/0+n1.site/0+n10.site/3", ("n10.site", "n1.site", "n10.site")),
        ("", ()),
    ],
)
def test_exec_host(text: str, hosts: tuple[str, ...]) -> None:
    assert answers.parse_exec_host(text) == hosts


@pytest.mark.parametrize("text", ["t1", "t1/", "t1/1-0", "t1/0+", "/0", "t1/0-999999+t2/0-999999", "$(x)/0", "t1/٣"])
def test_exec_host_of_another_form_is_an_error(text: str) -> None:
    with pytest.raises(SiteFault):
        answers.parse_exec_host(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("01:00:00", 3600), ("10:00", 600), ("90", 90), ("1:0:0:1", 86401), ("", 0)]
)
def test_walltime(text: str, seconds: int) -> None:
    assert answers.parse_walltime(text) == seconds


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("A=1,B=two", {"A": "1", "B": "two"}),
        (r"A=1\,2,B=\"x\"", {"A": "1,2", "B": '"x"'}),
        ("A=1,2,B=", {"A": "1,2", "B": ""}),
        ("A=1,,2,,B=", {"A": "1,,2,", "B": ""}),
        (r"A=\,,B=", {"A": ",", "B": ""}),
        (r"A=1\,,B=2\,", {"A": "1,", "B": "2,"}),
        (r"P=C:\x,Q=a=b", {"P": r"C:\x", "Q": "a=b"}),
        ("A=1,BASH_FUNC_f%%=() { :; },B= ", {"A": "1", "BASH_FUNC_f%%": "() { :; }", "B": " "}),
        ("A=1,BASH_FUNC_g()=() { :; }", {"A": "1", "BASH_FUNC_g()": "() { :; }"}),
        ("", {}),
    ],
)
def test_variable_list(text: str, variables: dict[str, str]) -> None:
    assert answers.parse_variables(text) == variables


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"<Data>", b'<!DOCTYPE Data [<!ENTITY a "b">]><Data>', "document type"),
        (b"<Data>", b'<!DOCTYPE Data SYSTEM "file:///etc/passwd"><Data>', "document type"),
        (b"</Data>", b"", "no XML"),
        (b"<euser>alice", b"<euser>root</euser><euser>alice", "euser stands twice"),
        (b"<start_count>1", b"<start_count>many", "start_count"),
        (b"<walltime>00:10:00", b"<walltime>soon", "walltime"),
        (b"</Job>", b"</Job><Job><Job_Id>11.th</Job_Id></Job>", "stands twice"),
    ],
)
def test_answer_that_cannot_be_believed(old: bytes, new: bytes, message: str) -> None:
    assert old in COMPLETE
    with pytest.raises(SiteFault, match=message):
        answers.parse_job(COMPLETE.replace(old, new), "11.th")


WARNING = b"qstat: warning: <server> is busy \xe4\n\n  \x1b[1mtwo lines of it\x1b[0m\r\n"


@pytest.mark.parametrize("before", [WARNING, b"\n" + WARNING, WARNING + b"  ", WARNING + b"\xef\xbb\xbf"])
def test_lines_of_text_before_the_xml_are_not_read_and_the_first_is_quoted(before: bytes) -> None:
    job = answers.parse_job(before + COMPLETE, "11.th")
    assert job.preface == "qstat: warning: <server> is busy \ufffd"
    plain = answers.parse_job(COMPLETE, "11.th")
    assert plain.preface == ""
    assert dataclasses.replace(job, preface="") == plain
    nodes = (FIXTURES / "pbsnodes-x.xml").read_bytes()
    assert [node.preface for node in answers.parse_nodes(before + nodes)] == [job.preface] * 3
    assert [node.name for node in answers.parse_nodes(before + nodes)] == ["t1", "t2", "t3"]
    assert len(answers.parse_job(b"w" * 500 + b"\n" + COMPLETE, "11.th").preface) == 120


@pytest.mark.parametrize(
    ("answer", "quoted"),
    [
        (WARNING.strip() + COMPLETE, "qstat: warning: <server> is busy"),  # no line of its own
        (b"bin\0ary\n" + COMPLETE, "bin\ufffdary"),
        (b"<warning>\n" + COMPLETE, "no XML"),
        (COMPLETE + b"bye: " + b"x" * 500, "bye: xxx"),
        (COMPLETE.replace(b"</Job>", b"</Job>\nwarning & more\n"), "warning & more"),
        (b"cannot tell\n", "cannot tell"),
        (b'warning\n<!DOCTYPE Data [<!ENTITY a "b">]>\n' + COMPLETE, "document type"),
    ],
)  # fmt: skip
def test_text_anywhere_else_is_an_error_that_quotes_it(answer: bytes, quoted: str) -> None:
    for read in (lambda: answers.parse_job(answer, "11.th"), lambda: answers.parse_nodes(answer)):
        with pytest.raises(SiteFault, match=re.escape(quoted)) as raised:
            read()
        assert len(str(raised.value)) < 300


def test_white_space_of_a_value_is_its_own() -> None:
    job = answers.parse_job(COMPLETE.replace(b"</Variable_List>", b",B=1\r2 </Variable_List>"), "11.th")
    assert job.variables["B"] == "1\r2 "


def test_bytes_that_no_xml_may_hold_do_not_hide_a_job() -> None:
    job = answers.parse_job(COMPLETE.replace(b"A=1", b"A=\xff\x1b"), "11.th")
    assert job.variables["A"] == "\ufffd\ufffd"


def only_our_errors(data: bytes, job_id: str) -> None:
    try:
        job = answers.parse_job(data, job_id)
    except SiteFault:
        return
    assert job.job_id == job_id


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_job_or_our_error(data: bytes) -> None:
    only_our_errors(data, "11.th")


@settings(deadline=None)
@given(st.integers(0, len(COMPLETE)), st.integers(0, 40), st.binary(max_size=20))
def test_damaged_answer_gives_a_job_or_our_error(at: int, cut: int, put: bytes) -> None:
    only_our_errors(COMPLETE[:at] + put + COMPLETE[at + cut :], "11.th")


@settings(deadline=None)
@given(st.text(max_size=40))
def test_text_of_users_comes_back_or_is_our_error(text: str) -> None:
    escaped = re.sub("[<>&]", lambda found: f"&#{ord(found[0])};", text).encode(errors="surrogatepass")
    job = answers.parse_job(COMPLETE.replace(b"<Job_Name>fx", b"<Job_Name>" + escaped), "11.th")
    assert job.name == text.strip() or not text.isprintable()


@settings(deadline=None)
@given(st.text("nt12/+-,.0x", max_size=20))
def test_exec_host_is_read_or_refused(text: str) -> None:
    try:
        hosts = answers.parse_exec_host(text)
    except SiteFault:
        return
    assert all(re.fullmatch(r"[nt12.0x-]+", host) for host in hosts)


def test_recorded_nodes() -> None:
    nodes = answers.parse_nodes((FIXTURES / "pbsnodes-x.xml").read_bytes())
    assert [(n.name, n.slots, n.memory_mib, n.offline, n.note) for n in nodes] == [
        ("t1", 2, 24105, False, ""), ("t2", 2, 24105, False, ""), ("t3", 2, 24105, False, ""),
    ]  # fmt: skip
    assert nodes[0].states == {"job-exclusive"}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("opsys=linux,state=free", ""),
        ("opsys=linux,message=ERROR nhc: disk,state=free", "ERROR nhc: disk"),
        ("message=EVENT: fan 3, and 4 = slow,rectime=1795178491,jobs=", "EVENT: fan 3, and 4 = slow"),
        ("opsys=linux,message=EVENT: last", "EVENT: last"),
        ("opsys=linux,message=", ""),
        ("opsys=linux,varattr=message=x", ""),
    ],
)
def test_message_of_the_moms_own_check_is_read_with_its_commas(status: str, message: str) -> None:
    recorded = (FIXTURES / "pbsnodes-x.xml").read_text("utf-8")
    text = re.sub("<status>[^<]*</status>", f"<status>{status}</status>", recorded, count=1)
    nodes = answers.parse_nodes(text.encode())
    assert [node.message for node in nodes] == [message, "", ""]
