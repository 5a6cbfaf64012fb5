# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fact has several forms in the answers of Slurm's versions, and is read by its form alone.

Recorded on 22.05.8 and 24.11.5 (tests/fixtures/slurm), the latter also with older data parsers.  What is marked READ
was made after the data parser of that version in Slurm's sources, and was not recorded.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import answers, commands, forms

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/slurm"
NEWER = FIXTURES / "24.11"


def number(value: int | None = None, *, infinite: bool = False) -> forms.Form:
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (5, 5),
        (None, None),
        (number(5), 5),
        (number(0), 0),
        (number(), None),
        (number(infinite=True), None),
        ({"set": True, "infinite": True, "number": 7}, None),
        ({"set": False, "infinite": False}, None),
        ("Infinity", None),
        (float("inf"), None),
    ],
)
def test_number_is_read_in_each_form(value: t.Any, found: int | None) -> None:
    facts = forms.Facts({"time_limit": value}, "job 4")
    assert facts.optional_number("time_limit") == found
    assert facts.number("time_limit") == (found or 0)


@pytest.mark.parametrize(
    "value",
    ["5", True, 5.5, -1, [5], {}, {"number": "5"}, {"set": True, "infinite": False}, {"set": True, "number": True}],
)
def test_number_of_no_form_is_an_error_that_names_field_and_value(value: t.Any) -> None:
    with pytest.raises(SiteFault) as caught:
        forms.Facts({"time_limit": value}, "job 4").number("time_limit")
    assert f"job 4: time_limit is {str(value)!r}, which cannot be read" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "state"),
    [
        ("RUNNING", "RUNNING"),
        (["RUNNING"], "RUNNING"),
        (["CANCELLED", "COMPLETING"], "COMPLETING"),
        (["RUNNING", "COMPLETING"], "COMPLETING"),
        (["PENDING", "REQUEUED", "COMPLETING"], "COMPLETING"),
        (["PENDING", "REQUEUE_HOLD"], "REQUEUE_HOLD"),
        (["RUNNING", "CONFIGURING", "POWER_UP_NODE"], "CONFIGURING"),
        (["PENDING", "LAUNCH_FAILED"], "PENDING"),
        (["A_STATE_OF_TOMORROW"], "A_STATE_OF_TOMORROW"),
    ],
)
def test_state_is_the_word_that_squeue_would_write_first(value: t.Any, state: str) -> None:
    assert forms.Facts({"job_state": value}, "job 4").state("job_state") == state


@pytest.mark.parametrize("value", [[], [1], 7, {"current": ["RUNNING"]}])
def test_state_of_no_form_names_field_and_value(value: t.Any) -> None:
    with pytest.raises(SiteFault, match="job_state is"):
        forms.Facts({"job_state": value}, "job 4").state("job_state")


def code(status: t.Any, signal: t.Any = None) -> forms.Form:
    return {"status": ["ERROR"], "return_code": status, "signal": {"id": signal, "name": "KILL"}}


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (37 << 8, 37 << 8),
        (number(37 << 8), 37 << 8),  # READ: 23.02
        (number(), 0),
        (code(number(37), number()), 37 << 8),
        (code(number(), number(9)), 9),
        (code(37, None), 37 << 8),
        (code(number(), number()), 0),
        ("", 0),
        ("0:0", 0),
        ("42:0", 42 << 8),
        ("0:9", 9),
        ("9472", 37 << 8),
    ],
)
def test_end_of_a_job_is_what_wait_reports(value: t.Any, status: int) -> None:
    assert forms.Facts({"exit_code": value}, "job 4").wait_status("exit_code") == status


@pytest.mark.parametrize("value", ["0:0:0", "x", "-1", code("x"), code(1, "KILL"), ["0"]])
def test_end_of_no_form_names_field_and_value(value: t.Any) -> None:
    with pytest.raises(SiteFault, match="exit_code is"):
        forms.Facts({"exit_code": value}, "job 4").wait_status("exit_code")


@pytest.mark.parametrize(
    "given",
    [
        {"nodes": "cn[1-2]", "allocated_nodes": [
            {"nodename": "cn1", "memory_allocated": 10, "sockets": {"0": {"cores": {
                "0": "allocated", "1": "unassigned"}}}},
            {"nodename": "cn2", "memory_allocated": 20, "sockets": {"0": {"cores": {
                "0": "allocated_and_in_use", "1": "allocated"}}}},
        ]},
        {"nodes": {"count": 2, "list": "cn[1-2]", "allocation": [
            {"name": "cn1", "memory": {"allocated": 10}, "sockets": [{"index": 0, "cores": [
                {"index": 0, "status": ["ALLOCATED"]}, {"index": 1, "status": ["UNALLOCATED"]}]}]},
            {"name": "cn2", "memory": {"allocated": 20}, "sockets": [{"index": 0, "cores": [
                {"index": 0, "status": ["ALLOCATED", "IN_USE"]}, {"index": 1, "status": ["ALLOCATED"]}]}]},
        ]}},
    ],
    ids=["22.05 to 23.11", "24.05 and newer"],
)  # fmt: skip
def test_what_a_job_was_given_is_read_in_each_form(given: forms.Form) -> None:
    form = {"nodes": "cn[1-2]", "job_resources": given}
    assert forms.allocated(form, "job 4") == {"cn1": (1, 10), "cn2": (2, 20)}
    given["nodes"] = 7
    with pytest.raises(SiteFault, match="job 4: job_resources is"):
        forms.allocated(form, "job 4")


PARSERS = ("v0.0.40", "v0.0.41", "v0.0.42", "v0.0.42+complex")


@pytest.mark.parametrize("parser", PARSERS)
def test_data_parser_that_the_site_pins_changes_nothing(parser: str) -> None:
    """24.11.5 wrote the same moment by each, with DataParserParameters."""
    expected = answers.parse_jobs((NEWER / "pinned-v0.0.42.json").read_bytes())
    assert len(expected) > 1
    assert all("R" not in job.state or job.slot_hosts for job in expected)
    assert answers.parse_jobs((NEWER / f"pinned-{parser}.json").read_bytes()) == expected
    nodes = answers.parse_nodes((NEWER / "pinned-nodes-v0.0.42.json").read_bytes())
    assert answers.parse_nodes((NEWER / f"pinned-nodes-{parser}.json").read_bytes()) == nodes


def test_nodes_of_24_11_are_described() -> None:
    one, other = answers.parse_nodes((NEWER / "nodes-drained.json").read_bytes())
    assert (one.name, one.states, one.note) == ("cn1", {"offline"}, "new disk (bob)")
    assert (other.name, other.states, other.note) == ("cn2", {"offline"}, "vtorque: bridge: x (job 7.th)")
    assert other.properties == {"vtorque", "fast"}
    one, other = answers.parse_nodes((NEWER / "nodes-down.json").read_bytes())
    assert (one.states, other.states) == ({"down"}, {"free"})


def test_reason_that_24_11_keeps_of_a_node_in_use_is_no_note() -> None:
    """Else no note of ours could be taken back, and a node with an old reason of somebody's could not be drained."""
    one, _other = answers.parse_nodes((NEWER / "nodes-resumed.json").read_bytes())
    assert (one.name, one.states, one.note) == ("cn1", {"free"}, "")


@pytest.mark.parametrize("flag", ["DRAIN", "NOT_RESPONDING"])
def test_flags_behind_the_state_of_a_node_are_read(flag: str) -> None:
    answer = json.loads((NEWER / "nodes.json").read_bytes())
    answer["nodes"][0]["state"] = ["IDLE", flag]
    states = answers.parse_nodes(json.dumps(answer).encode())[0].states
    assert states == {{"DRAIN": "offline"}.get(flag, "down")}


@pytest.mark.parametrize("key", ["cpus", "real_memory", "state", "active_features", "reason", "name"])
def test_value_of_a_node_that_cannot_be_read_is_named_by_its_field(key: str) -> None:
    answer = json.loads((NEWER / "nodes.json").read_bytes())
    answer["nodes"][0][key] = {"new": "form"}
    with pytest.raises(SiteFault) as caught:
        answers.parse_nodes(json.dumps(answer).encode())
    assert f"{key} is \"{{'new': 'form'}}\"" in str(caught.value)


NO_SERIALIZER_24 = "squeue: error: load_plugins: unable to find plugin: serializer/json"
NO_SERIALIZER_22 = "squeue: fatal: Unable to find plugin: serializer/json"
NO_PARSER = """\
squeue: error: load_plugins: unable to find plugin: data_parser/v0.0.39
squeue: error: data_parser_g_new: failure loading plugins: Plugin has invalid format or unable to be loaded
squeue: error: application/json output not supported by data_parser/v0.0.42"""


@pytest.mark.parametrize(
    ("words", "end", "problem", "remedy"),
    [
        (NO_SERIALIZER_22, "exit 1", "has no plugin serializer/json", "install"),
        (NO_SERIALIZER_24, "kill -SEGV $$", "has no plugin serializer/json", "install"),
        (NO_PARSER, "exit 1", "has no plugin data_parser/v0.0.39", "DataParserParameters"),
    ],
)
def test_plugin_that_is_missing_is_named(
    tmp_path: pathlib.Path, words: str, end: str, problem: str, remedy: str
) -> None:
    """What squeue 22.05.8 and 24.11.5 wrote."""
    (tmp_path / "words").write_text(f"{words}\n")
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ncat {tmp_path}/words >&2\n{end}\n")
    (tmp_path / "squeue").chmod(0o755)
    with pytest.raises(SiteFault) as caught:
        commands.run(tmp_path, ("squeue", "--json"), "", timeout_s=10, deadline=None)
    assert problem in caught.value.why
    assert remedy in caught.value.hint
