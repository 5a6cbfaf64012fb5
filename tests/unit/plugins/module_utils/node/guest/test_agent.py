# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Orders to the root of guests, over sockets that answer as a guest's channel does."""

from __future__ import annotations

import base64
import contextlib
import pathlib
import socket
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.agent import (
    HEARD,
    Channel,
    OrderResult,
    order_all,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

TOKEN = "f00d"
GREETING = f"vtorque-agent {TOKEN}\nvtorque-agent {TOKEN} WORD\n".encode()
PATIENCE_S = 60.0


def answer(status: int, text: bytes = b"") -> bytes:
    return b"%d %s\n" % (status, base64.b64encode(text))


class Guest:
    """The host's end of a guest's channel: greets, hears one order, answers.

    Args:
        said: before the order; its greeting unless a test says otherwise.
        answered: after it; nothing: the channel is closed.
    """

    def __init__(self, path: pathlib.Path, answered: bytes, output: bytes = GREETING) -> None:
        self.channel = Channel(path.name, path, TOKEN)
        self.order: tuple[int, bytes] | None = None
        self._said, self._answered = output, answered
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        peer, _address = self._listener.accept()
        # the node may hang up at any time
        with contextlib.suppress(OSError), peer, peer.makefile("rb") as stream:
            word = stream.readline().split()[1]
            peer.sendall(self._said.replace(b"WORD", word))
            head = stream.readline().split()
            if len(head) == 2:
                self.order = (int(head[0]), stream.read(int(head[1])))
            peer.sendall(self._answered)
            if self._answered:
                stream.read(1)  # until the node has heard it

    def end(self) -> None:
        self._listener.close()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[..., Guest]]:
    made: list[Guest] = []

    def make(*args: t.Any, **more: t.Any) -> Guest:
        made.append(Guest(tmp_path / f"vn1-{len(made) + 1}", *args, **more))
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_every_guest_gets_its_order_and_all_answers_are_told(guest: t.Any) -> None:
    guests = [guest(answer(0, b"fine\n")), guest(answer(3, b"no\x1b[31m disk\n"))]
    done = order_all([(one.channel, f"echo {one.channel.name}") for one in guests], Deadline.after(PATIENCE_S))
    assert done == {"vn1-1": OrderResult(0, "fine"), "vn1-2": OrderResult(3, "no disk")}
    assert [one.order[1] for one in guests] == [b"echo vn1-1", b"echo vn1-2"]
    assert all(0 < one.order[0] <= PATIENCE_S for one in guests)


def test_end_of_a_talk_that_was_broken_off_is_no_answer(guest: t.Any) -> None:
    late = guest(answer(0), output=answer(1, b"of the talk before") + GREETING)
    assert order_all([(late.channel, "true")], Deadline.after(PATIENCE_S)) == {"vn1-1": OrderResult(0, "")}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"answered": b""}, "its channel was closed"),
        ({"answered": b"0 nonsense!\n"}, "of no known form"),
        ({"answered": b"zero \n"}, "of no known form"),
        ({"answered": b"1234 \n"}, "of no known form"),
        ({"answered": b"0 " + b"A" * 2 * HEARD}, "writes nonsense"),
        ({"answered": b"", "output": b"x" * 2 * HEARD}, "writes nonsense"),
    ],
)
def test_what_the_guests_root_writes_is_bounded_and_not_believed(guest: t.Any, more: t.Any, why: str) -> None:
    one = guest(**more)
    with pytest.raises(VTorqueError, match=why):
        order_all([(one.channel, "true")], Deadline.after(PATIENCE_S))


def test_guest_of_another_start_is_not_ordered(guest: t.Any) -> None:
    other = guest(answer(0), output=b"vtorque-agent beef WORD\n")
    with pytest.raises(VTorqueError, match=r"guest vn1-1: did not answer .* in time"):
        order_all([(other.channel, "true")], Deadline.after(0.2))
    assert other.order is None


def test_channel_that_is_not_there_names_its_guest(tmp_path: pathlib.Path) -> None:
    with pytest.raises(VTorqueError, match="guest vn1-9: its channel cannot be opened"):
        order_all([(Channel("vn1-9", tmp_path / "none", TOKEN), "true")], Deadline.after(1))
