# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch server, a node and a person may each spell a host's name their way: it is one host everywhere."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import adapter
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.doctor import selftest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import console_files, job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.host_expressions import host_matches
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.bare import bare_host
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import join
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages, node_answers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import Finding, Report
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import node_settings
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.upkeep import examine
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions import node_answer
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import authorize

SPELLINGS = ("Node1", "NODE1.cluster", "node1")
OWNER = messages.Owner("alice", 4242, 4242, "alice", "/home/alice", "/bin/sh")
PART = messages.NodePart(1, "absent", "7.head", 2, "Node1", 60.0, OWNER, ())
KEY = messages.KeyPair("private", "ssh-ed25519 " + "A" * 68)


def used(name: str) -> node_answers.GuestUse:
    """What a guest of that name had used."""
    return node_answers.GuestUse(name, 1, 1, 1, 1, 1, 1)


each_spelling = pytest.mark.parametrize("asked", SPELLINGS)
each_of_the_nodes_own = pytest.mark.parametrize("own", ["Node1", "NODE1", "node1"])


@each_spelling
@each_of_the_nodes_own
def test_node_knows_that_it_is_meant(asked: str, own: str) -> None:
    part = dataclasses.replace(PART, node=asked)
    settings = node_settings.settings_of(Policy(), own)
    assert authorize.authorize_part(part, Policy(), settings, {}) == authorize.Caller("", None)
    with pytest.raises(VTorqueError, match="is asked"):
        authorize.authorize_part(dataclasses.replace(part, node=f"x{asked}"), Policy(), settings, {})


@each_spelling
@each_of_the_nodes_own
def test_nodes_guests_are_named_as_it_names_itself(asked: str, own: str) -> None:
    part = dataclasses.replace(PART, node=asked)
    named = [used(f"v{own}-{slot}") for slot in (1, 2)]
    node_answer._check_names(part, named, "it", ())
    with pytest.raises(VTorqueError, match="twice"):
        node_answer._check_names(part, [named[0], used(named[0].name.swapcase())], "it", ())
    with pytest.raises(VTorqueError, match="is not v"):
        node_answer._check_names(part, [used(f"v{own}0-1")], "it", ())
    node_answer._check_names(part, [used("vother-1")], "it", ("vother-1",))  # it came from there


@each_of_the_nodes_own
def test_node_knows_whether_it_is_one_of_those_with_cores_for_virtual_io(own: str) -> None:
    for policy, has in (
        (Policy(iocm_enabled=True, iocm_nodes="node[12]"), True),
        (Policy(iocm_enabled=True, iocm_nodes="node2"), False),
        (Policy(iocm_enabled=True), True),
        (Policy(iocm_nodes="node1"), False),
    ):
        assert node_settings.settings_of(policy, own).io_cores == has


def test_two_guests_do_not_differ_by_the_case_of_their_names() -> None:
    facts = [node_answers.GuestFacts(rank, name, f"52:54:00:00:01:0{rank}", f"10.77.0.{rank + 1}", {})
             for rank, name in enumerate(("vNode1-1", "vnode1-1"))]  # fmt: skip
    with pytest.raises(VTorqueError, match="2 guests have the name"):
        node_answer.require_distinct(facts, "they")


@each_spelling
@pytest.mark.parametrize("known", SPELLINGS)
def test_batch_servers_node_is_found(tmp_path: pathlib.Path, asked: str, known: str) -> None:
    message = f"<Data><Node><name>{known}</name><state>free</state><np>4</np><note>fan</note></Node></Data>"
    program = tmp_path / "pbsnodes"
    program.write_text(f"#!/bin/sh\necho '{message}'\n")
    program.chmod(0o755)
    batch = adapter.Torque(tmp_path)
    assert (batch.node(asked).name, batch.note(asked)) == (known, "fan")
    with pytest.raises(SiteFault, match="no nodes of that name"):
        batch.node(f"{asked.partition('.')[0]}0")


@each_spelling
def test_expression_of_the_sites_fits(asked: str) -> None:
    assert all(host_matches(expression, asked) for expression in ("node1", "Node[0-9]", "node.*"))
    assert not host_matches("node", asked)


@each_spelling
def test_record_has_the_consoles_of_a_node(tmp_path: pathlib.Path, asked: str) -> None:
    (tmp_path / "vNode1-1.console.log").touch()
    raw = {"guests": [{"rank": 0, "name": "vNode1-1", "node": "Node1"}]}
    record = job_record.JobRecord("7.head", 1, tmp_path, "", raw)
    found = {"vNode1-1": tmp_path / "vNode1-1.console.log"}
    assert console_files.choose_consoles(record, guest=None, node=asked) == found
    assert console_files.choose_consoles(record, guest=f"v{asked.partition('.')[0]}-1", node=None) == found


@each_spelling
def test_trial_job_that_ran_on_a_node_is_seen(asked: str) -> None:
    expected = t.cast(selftest.ExpectedOutcome, dataclasses.make_dataclass("E", ["nodes"])(("Node1",)))
    came = t.cast(selftest.JobOutcome, dataclasses.make_dataclass("C", ["record"])(None))
    assert "in no virtual machine" in selftest._machine(expected, came, {"host": [asked]}).problem


@each_spelling
def test_servers_word_on_a_silent_node_is_found(asked: str) -> None:
    known = {"Node1": BatchNode("Node1", frozenset({"down"}), 4, 0, frozenset(), "")}
    silent = Report(asked, (Finding("ssh"),), 0.0, 0.0, asked=False)
    (report,) = examine.judge_together([silent], Policy(), "head", known)
    assert "the batch server says down" in "; ".join(finding.problem for finding in report.findings)


@pytest.fixture
def job_map() -> messages.JobMap:
    hosts = tuple(messages.JobHost(f"vNode{number}-1", f"10.77.0.{number}", 1, KEY.public) for number in (1, 2))
    return messages.JobMap(1, "join", "7.head", 2, "Node1", 60.0, hosts, KEY)


@pytest.mark.parametrize("typed", ["vNode1-1", "vnode1-1", "VNODE1-1.cluster"])
def test_ssh_finds_a_guest_however_it_is_typed(tmp_path: pathlib.Path, job_map: messages.JobMap, typed: str) -> None:
    """In known_hosts, on a bare host and in a guest: what is compared is OpenSSH's affair, so it is asked."""
    settings = node_settings.settings_of(Policy(domain="Cluster"), "Node1")
    (tmp_path / "known").write_text(bare_host.known_hosts(job_map.hosts, settings))
    output = subprocess.run(["ssh-keygen", "-F", typed, "-f", tmp_path / "known"], capture_output=True, check=True)
    assert b"vNode1-1" in output.stdout
    script = join.script_of(job_map, settings)
    (pattern,) = (line for line in script.splitlines() if line.startswith("printf '%s\\n' 'Host "))
    (tmp_path / "config").write_text(pattern.split("'")[3] + "\n    IdentityFile /job_key\n")
    arguments = ["ssh", "-G", "-F", tmp_path / "config", typed]
    report = subprocess.run(arguments, capture_output=True, check=True, text=True)
    # of a guest's configuration ssh compares what was typed: its own spelling and small letters are there
    assert ("identityfile /job_key" in report.stdout) is not typed.startswith("VNODE")
