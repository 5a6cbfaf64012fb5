# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever one node writes to another, or a guest's root to its node: it is of the form, or an error of ours.

Seen to fail: with a reader of messages that demands no form of texts.
"""

from __future__ import annotations

import base64
import io
import json
import pathlib
import re
import typing as t
import xml.etree.ElementTree as ET

import hypothesis.strategies as st
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import agent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.console import Console, plain
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import (
    form,
    health_report,
    messages,
    node_answers,
    node_topology,
)
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import node_drawing, node_picture
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions import node_answer
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import handlers, protocol
from hypothesis import given

from .inputs import JSON, ODD, TEXTS, as_bytes, check_message, damaged, spoiled, tried

PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "A" * 200 + "\n-----END OPENSSH PRIVATE KEY-----\n"
KEY = messages.KeyPair(PRIVATE, "ssh-ed25519 " + "A" * 68)
OWNER = messages.Owner("alice", 1001, 1001, "chem", "/home/alice", "/bin/sh", (messages.Group("a b", 7),))
SPEC = messages.GuestSpec(
    rank=0, index=0, image="tiny", distro="debian", arch="x86_64", vcpus=1, ram_mib=64, hypervisor="qemu",
    fs_type="sharedfs", host_key=KEY, authorized_key=KEY.public,
)  # fmt: skip
ADDED = messages.Additions(
    (messages.Package("jq"),), (messages.AddedFile("/f", "600", "QQ=="),), (messages.Command("ls"),)
)
PART = messages.NodePart(1, "present", "7.head", 2, "cn1", 60.0, OWNER, (SPEC,), 0, ADDED)
MAP = messages.JobMap(
    1, "join", "7.head", 2, "cn1", 60.0, (messages.JobHost("vcn1-1", "10.0.0.2", 2, KEY.public),), KEY
)
LOST = messages.LostGuest(1, "lost", "7.head", 2, "cn1", "vcn1-1", "crashed", "words")
SUSPENSION = messages.Suspension(1, "suspend", "7.head", 2, "cn1")
SAVED = messages.SavedRequest(1, "forget", "7.head", 5.0)
ORDER = messages.ImageOrder(1, "image", "tiny@2", "local", False, 5.0)
FACTS = node_answers.GuestFacts(0, "vcn1-1", "52:54:00:00:01:01", "10.77.0.100", {"ready": 1.0})
USE = node_answers.GuestUse("vcn1-1", 1.5, 1, 2, 3, 4, 5)
ANSWER = {"version": 1, "ok": True, "guests": [form.to_dict(FACTS)], "removed": ["domain v"], "left": [],
          "used": [form.to_dict(USE)]}  # fmt: skip
FAILED = {"version": 1, "ok": False, "error": {"fault": "node", "what": "w", "why": "y", "hint": "h", "cause": "disk"},
          "left": []}  # fmt: skip
REPORT = health_report.Report(
    "cn1", (health_report.Finding(health_report.CHECKS[0]),), 1.0, 2.0, True, {"bridge": "0f"}, "1.0"
).to_dict()
FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
TOPOLOGY = json.loads((FIXTURES / "topology/gn1.json").read_text(encoding="utf-8"))
TOKEN = "0123456789abcdef"


def request(line: bytes) -> t.Any:
    """What a node reads of a line; None: it was refused."""
    try:
        return protocol.decode_request(protocol.read_line(io.BytesIO(line)), handlers.decoders_of(handlers.KINDS))[1]
    except VTorqueError as error:
        check_message(error)
        return None


def require_form(found: t.Any) -> None:
    """What a node acts upon has the form of its kind, whatever was done to the line; None: it was refused."""
    if isinstance(found, (messages.NodePart, messages.LostGuest, messages.Suspension)):
        assert re.fullmatch(messages.JOB_ID, found.job_id)
        assert re.fullmatch(messages.HOST_NAME, found.node)
    if isinstance(found, messages.NodePart):
        assert all(re.fullmatch(messages.USER_NAME, found.owner.user) for _guest in found.guests)
        assert all(guest.hypervisor in messages.HYPERVISORS for guest in found.guests)
    if isinstance(found, messages.LostGuest):
        assert (found.reason + found.console).isprintable() or not (found.reason + found.console).isascii()
    if isinstance(found, health_report.ReportRequest):
        assert 1 <= found.timeout_s <= health_report.LONGEST_S


@tried
@given(st.sampled_from([PART, LOST, ORDER, SUSPENSION, SAVED]).flatmap(lambda thing: spoiled(form.to_dict(thing))))
def test_any_request_is_of_the_form_or_refused(data: t.Any) -> None:
    require_form(request(as_bytes(data)))


@tried
@given(damaged(as_bytes(form.to_dict(PART))))
def test_any_damaged_request_is_read_or_refused(line: bytes) -> None:
    require_form(request(line))


@tried
@given(spoiled({"version": health_report.VERSION, "do": health_report.DO, "timeout_s": 20}))
def test_any_request_for_a_report_is_read_or_refused(data: t.Any) -> None:
    require_form(request(as_bytes(data)))


@tried
@given(spoiled(TOPOLOGY))
def test_any_topology_is_of_the_form_or_refused(data: t.Any) -> None:
    try:
        found = node_topology.topology_from_dict(data)
    except VTorqueError as error:
        check_message(error)
        return
    drawn = [line.plain() for line in node_drawing.draw_node(found, 80)]
    assert all(line.isprintable() for line in drawn)
    ET.fromstring(node_picture.draw_picture(found))


@tried
@given(spoiled(form.to_dict(MAP)))
def test_any_map_of_a_job_is_of_the_form_or_refused(data: t.Any) -> None:
    try:
        found = form.from_dict(messages.JobMap, data)
    except VTorqueError as error:
        check_message(error, secret="PRIVATE")
    else:
        assert re.fullmatch(messages.JOB_ID, found.job_id)
        assert all(re.fullmatch(messages.HOST_NAME, host.name) for host in found.hosts)


@tried
@given(
    st.one_of(spoiled(ANSWER), spoiled(FAILED)).map(as_bytes) | damaged(as_bytes(ANSWER)),
    st.sampled_from([0, 1, 127, 255]),
    st.binary(max_size=30),
)
def test_any_answer_of_a_node_is_about_what_was_asked_or_an_error(output: bytes, status: int, complaint: bytes) -> None:
    try:
        found = node_answer.read_answer(PART, status, output, complaint)
    except VTorqueError as error:
        check_message(error)
    else:
        assert [guest.rank for guest in found.guests] == [0]
        assert all(re.fullmatch(r"vcn1-[0-9]{1,4}", guest.name) for guest in (*found.guests, *found.used))
        assert all(arguments.isprintable() for arguments in found.removed)


@tried
@given(spoiled(REPORT))
def test_any_report_of_a_node_is_of_the_form_or_refused(data: t.Any) -> None:
    try:
        found = health_report.report_from_dict("cn1", data)
    except VTorqueError as error:
        check_message(error)
    else:
        assert found.node == "cn1"
        assert all(arguments.isprintable() for arguments in found.problems)
        assert all(finding.cell.isprintable() for finding in found.findings)


LINES = st.one_of(
    st.binary(max_size=40), ODD.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([f"vtorque-ready {TOKEN} ", "vtorque-ready 00 ", f"vtorque-failed {TOKEN} ",
                     "Kernel panic - not syncing: ", "10.77.0.100", "::1", "\n", "\r\n", "\x1b[31m",
                     "\xff"]).map(str.encode),
)  # fmt: skip


@tried
@given(st.lists(LINES, max_size=8), st.integers(1, 50))
def test_any_console_is_harmless_and_ready_by_its_token_alone(pieces: list[bytes], step: int) -> None:
    data = b"".join(pieces)
    console = Console(pathlib.Path("/nonexistent"), TOKEN)
    for at in range(0, len(data), step):
        console._take(data[at : at + step])
    texts = [console.last_output(), console.describe(), console.failed or "", console.panic or "", *console.tail]
    assert all(text.isprintable() for text in texts)
    if console.ready_address is not None:
        assert re.fullmatch(messages.ADDRESS, console.ready_address)
        assert TOKEN in "".join(map(plain, data.decode("utf-8", "replace").split("\n")))


class Peer:
    """A guest's end of the channel, which writes what it likes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sent: list[bytes] = []

    def recv(self, count: int) -> bytes:
        found, self.data = self.data[:count], self.data[count:]
        return found

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        pass


@tried
@given(st.booleans(), st.one_of(
    st.binary(max_size=80), st.tuples(st.integers(-9, 9999), TEXTS).map(
        lambda end: b"%d %s\n" % (end[0], base64.b64encode(end[1].encode("utf-8", "surrogatepass")))),
    damaged(b"0 " + base64.b64encode(b"words of an order") + b"\n")))  # fmt: skip
def test_any_answer_of_a_guests_root_is_bounded_and_harmless(greeted: bool, data: bytes) -> None:
    talk = agent._Talk(agent.Channel("vcn1-1", pathlib.Path("/nonexistent"), TOKEN), "id\n", Deadline.after(9.0))
    talk.peer.close()
    hello = f"vtorque-agent {TOKEN} {talk._word}\n".encode() if greeted else b""
    talk.peer = peer = t.cast(t.Any, Peer(hello + data))
    try:
        while talk.done is None:
            talk.read_reply()
    except VTorqueError as error:
        check_message(error)
    else:
        assert 0 <= talk.done.status <= 999
        assert all(line.isprintable() for line in talk.done.output.split("\n"))
        assert greeted
    assert bool(peer.sent) == greeted


@tried
@given(JSON)
def test_any_json_is_no_thing_of_ours(data: t.Any) -> None:
    for cls in (messages.NodePart, messages.JobMap, node_answers.GuestFacts, node_answers.BareHost):
        with pytest.raises(form.FormError) as caught:
            form.from_dict(cls, data)
        check_message(caught.value)
