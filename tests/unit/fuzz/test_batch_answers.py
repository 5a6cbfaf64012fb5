# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever qstat and pbsnodes write, and whatever a node file holds: facts of the right form, or an error of ours.

Seen to fail: with the reading of variables as it was, where a value that ends with a comma got a second one.
"""

from __future__ import annotations

import pathlib
import re
import typing as t
from xml.sax.saxutils import escape

import hypothesis.strategies as st
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.inventory import pbs_nodefile
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.shared import exec_hosts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import answers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.mom_files import check_node_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import HOST_NAME
from hypothesis import given

from .inputs import ODD, TEXTS, check_message, damaged, tried, without_crash

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures/torque"
JOB = (FIXTURES / "qstat-x-f-complete-2-nodes.xml").read_bytes()
NODES = (FIXTURES / "pbsnodes-x.xml").read_bytes()
TAGS = sorted(set(re.findall(rb"<(\w+)>[^<]+</", JOB)))
NODE_TAGS = sorted(set(re.findall(rb"<(\w+)>[^<]+</", NODES)))
SLOTS = st.lists(
    st.sampled_from(["t1", "t2", "/", "0", "-", "3", ",", "+", "999999", "\u0663", "1-0"]), max_size=8
).map("".join)
KEPT, BEFORE_IT = re.compile(r"[\"',\\\n]"), r"\\\g<0>"
"""Torque puts a backslash before these (encode_arst)."""
NAMES = st.sampled_from(["n1", "n2", "n1.a", "N1.a.b", "n1.b", "n3"])


def put(data: bytes, tag: bytes, text: str) -> bytes:
    """The answer with another text in one place, escaped as Torque escapes."""
    value = escape(text, {"'": "&apos;", '"': "&quot;"}).encode("utf-8", "surrogatepass")
    return re.sub(rb"<%s>[^<]*</" % tag, lambda _found: b"<%s>%s</" % (tag, value), data, count=1)


def harmless(job: t.Any) -> None:
    assert job.job_id == "11.th"
    assert all(re.fullmatch(HOST_NAME, host) for host in job.slot_hosts)
    figures = [getattr(job, name) for name in ("start_count", "session_id", "substate", "walltime_s")]
    assert all(isinstance(one, int) and not isinstance(one, bool) for one in figures)


@tried
@given(damaged(JOB))
def test_any_answer_of_qstat_is_a_job_or_an_error_of_ours(data: bytes) -> None:
    job = without_crash(lambda: answers.parse_job(data, "11.th"))
    if job is not None:
        harmless(job)


@tried
@given(st.lists(st.tuples(st.sampled_from(TAGS), st.one_of(TEXTS, SLOTS)), min_size=1, max_size=3))
def test_job_texts_in_server_answers_are_read_once_as_data(changes: list[tuple[bytes, str]]) -> None:
    data = JOB
    for tag, text in changes:
        data = put(data, tag, text)
    if not any(tag == b"Job_Id" for tag, _text in changes) and (
        job := without_crash(lambda: answers.parse_job(data, "11.th"))
    ):
        harmless(job)
        before = answers.parse_job(JOB, "11.th")
        for tag, name in ((b"Job_Name", "name"), (b"x", "x"), (b"queue", "queue"), (b"euser", "euser")):
            report = [text for changed, text in changes if changed == tag]
            if not report:
                assert getattr(job, name) == getattr(before, name)
            elif report[-1].isprintable():
                assert getattr(job, name) == report[-1].strip()


@tried
@given(st.one_of(damaged(NODES), st.tuples(st.sampled_from(NODE_TAGS), st.one_of(TEXTS, SLOTS)).map(
    lambda change: put(NODES, *change))))  # fmt: skip
def test_any_answer_of_pbsnodes_is_nodes_or_an_error_of_ours(data: bytes) -> None:
    for node in without_crash(lambda: answers.parse_nodes(data)) or ():
        assert 0 <= node.slots < 10**6
        assert node.memory_mib >= 0


@tried
@given(st.one_of(TEXTS, SLOTS))
def test_any_exec_host_is_hosts_or_refused(text: str) -> None:
    hosts = without_crash(lambda: answers.parse_exec_host(text)) or ()
    assert len(hosts) <= exec_hosts.MAX_SLOTS


@tried
@given(st.lists(st.tuples(st.sampled_from(["A", "B_2", "PATH", "X"]), TEXTS), max_size=4), TEXTS)
def test_variables_come_back_as_they_were(pairs: list[tuple[str, str]], other: str) -> None:
    answers.parse_variables(other)
    written = (f"{name}={KEPT.sub(BEFORE_IT, value)}" for name, value in pairs)
    assert answers.parse_variables(",".join(written)) == dict(pairs)


@tried
@given(TEXTS)
def test_any_walltime_is_seconds_or_refused(text: str) -> None:
    assert (without_crash(lambda: answers.parse_walltime(text)) or 0) >= 0


@pytest.fixture(scope="module")
def node_file(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("nodes") / "nodes"


NODE_FILES = st.one_of(
    st.lists(st.one_of(NAMES, TEXTS), max_size=5).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")),
    damaged(b"n1\nn1\nn2\n"),
)


@tried
@given(NODE_FILES)
def test_any_node_file_is_host_names_or_refused(node_file: pathlib.Path, data: bytes) -> None:
    node_file.write_bytes(data)
    names = without_crash(lambda: pbs_nodefile.read_nodefile(node_file))
    if names is not None:
        assert list(names) == data.decode("ascii").split()
        assert all(re.fullmatch(HOST_NAME, name) for name in names)
        assert set(pbs_nodefile.distinct(names)) <= set(names)


@tried
@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(st.one_of(NAMES, ODD), max_size=4))
def test_node_file_is_the_servers_or_refused(hosts: list[str], lines: list[str]) -> None:
    try:
        check_node_file("\n".join(lines), hosts)
    except UserFault as error:
        check_message(error)
    else:
        assert len("\n".join(lines).split()) == len(hosts)
    with pytest.raises(SiteFault):
        answers.parse_exec_host("+".join([*hosts, ""]))
