# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our note goes when its cause tests good, and an administrator's never."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import offline_note

OURS = "vtorque: bridge: bridge br0: is missing on this node (job 7.head)"
WRONG = NodeFault("bridge br0", "is missing on this node", cause="bridge")


class Server:
    """A batch server with one node."""

    def __init__(self, note: str) -> None:
        self.stored = note
        self.silent = False

    def note(self, _node: str) -> str:
        return self.stored

    def clear(self, _node: str, note: str) -> bool:
        if self.silent:
            raise SiteFault("node cn1 is still offline", "pbsnodes -c was told")
        if note != self.stored:
            return False
        self.stored = ""
        return True


def take_back(server: Server, *wrong: NodeFault, asked: list[str] | None = None) -> offline_note.NoteWord:
    def troubles(cause: str) -> tuple[NodeFault, ...]:
        if asked is not None:
            asked.append(cause)
        return wrong

    return offline_note.take_back(server, "cn1", troubles)  # type: ignore[arg-type]


def test_our_note_goes_when_its_cause_tests_good() -> None:
    server = Server(OURS)
    assert take_back(server) == offline_note.NoteWord(OURS, True, "bridge tests good")
    assert server.stored == ""


def test_our_note_stays_while_its_cause_does_not() -> None:
    server = Server(OURS)
    assert take_back(server, WRONG) == offline_note.NoteWord(OURS, False, "bridge br0: is missing on this node")
    assert server.stored == OURS


@pytest.mark.parametrize("note", ["vtorque: spare", "vtorque: spare for 7.head"])
def test_note_of_a_spare_node_is_no_fault_and_is_not_taken_back(note: str) -> None:
    server, asked = Server(note), list[str]()
    assert take_back(server, asked=asked) == offline_note.NoteWord()
    assert (server.stored, asked) == (note, [])
    assert offline_note.is_spare_note(note)
    assert not offline_note.is_spare_note("vtorque: spare parts are missing")


@pytest.mark.parametrize("note", ["", "disk swap on Monday", "VTORQUE: bridge: x", "see vtorque: bridge: x", "vtorque"])
def test_a_note_of_an_administrator_is_not_even_tested(note: str) -> None:
    server, asked = Server(note), list[str]()
    assert take_back(server, asked=asked) == offline_note.NoteWord()
    assert (server.stored, asked) == (note, [])


@pytest.mark.parametrize(
    ("note", "cause"),
    [
        (OURS, "bridge"),
        ("vtorque: libvirt: gave no answer", "libvirt"),
        ("vtorque: virtualisation: none", "virtualisation"),
        ("vtorque: disk:", "disk"),
        ("vtorque: programs: qemu-img", "programs"),
        ("vtorque: degrading: nhc: ERROR: memory", "degrading"),
        ("vtorque: weather: rain", ""),
        ("vtorque: something is wrong", ""),
        ("vtorque: ", ""),
    ],
)
def test_the_cause_is_read_from_the_note_and_everything_is_tested_when_it_names_none(note: str, cause: str) -> None:
    asked = list[str]()
    assert take_back(Server(note), asked=asked).taken_back
    assert asked == [cause]


def test_a_note_that_changes_meanwhile_is_left_alone() -> None:
    server = Server(OURS)

    def troubles(_cause: str) -> tuple[NodeFault, ...]:
        server.stored = "hands off: bob"
        return ()

    word = offline_note.take_back(server, "cn1", troubles)  # type: ignore[arg-type]
    assert (word.taken_back, word.why) == (False, "somebody changed it meanwhile")
    assert server.stored == "hands off: bob"


def test_a_note_that_would_not_go_is_an_error() -> None:
    server = Server(OURS)
    server.silent = True
    with pytest.raises(SiteFault, match="still offline"):
        take_back(server)
