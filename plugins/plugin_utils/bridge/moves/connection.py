# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways of a move to the spare node: calls of its `vtorque-node` by the restricted ssh, and bytes over the same."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import typing as t

from ....module_utils.errors import VTorqueError, error_from_dict
from ....module_utils.system import relay
from ....module_utils.system.clock import Deadline
from ....module_utils.system.process.environment import ROOT_ENVIRONMENT
from ....module_utils.text import printable
from ....module_utils.wire.form import to_dict
from ....module_utils.wire.moves import FILES, Stream
from ....module_utils.wire.node_command import PROGRAM, ssh_command

CONNECT_S = 15
ANSWER_S = 60.0
"""For an answer that is no more than a look."""
LIMIT = 1 << 20
Answer = dict[str, t.Any]


class NotAnswered(VTorqueError):
    """Another node gave no answer."""


def open_call(
    host: str, message: t.Any, timeout_s: int = CONNECT_S, *, errors: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Ask another node; whoever reads the answer ends the call.

    Args:
        host: name or address.
        message: of `vtorque-node`'s.
        timeout_s: seconds for the connection.
        errors: where the standard error of the call goes.

    Raises:
        OSError: ssh does not start.
    """
    call = subprocess.Popen(
        ssh_command(PROGRAM, host, timeout_s),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd="/",
        env=ROOT_ENVIRONMENT,
        bufsize=0,
    )
    with contextlib.suppress(OSError):  # it has ended, which its answer says
        t.cast("t.IO[bytes]", call.stdin).write(json.dumps(to_dict(message), ensure_ascii=True).encode("ascii") + b"\n")
    return call


def send_request(host: str, message: t.Any, timeout_s: float = ANSWER_S) -> Answer:
    """Return the answer of another node.

    Raises:
        VTorqueError: it refuses, in its words; or there is none in time.
    """
    try:
        call = open_call(host, message)
    except OSError as error:
        raise VTorqueError(f"vtorque-node on {host}", str(error)) from error
    try:
        return read_answer(call, host, Deadline.after(timeout_s))
    finally:
        end_call(call)


def read_answer(call: subprocess.Popen[bytes], host: str, deadline: Deadline) -> Answer:
    """Return the next line of a call; nothing that follows it is read.

    Raises:
        VTorqueError: the node refuses, in its words; or there is none in time.
    """
    stdout = t.cast("t.IO[bytes]", call.stdout).fileno()
    line = bytearray()
    while not line.endswith(b"\n"):
        if not select.select([stdout], [], [], deadline.left_s(86_400.0))[0]:
            raise NotAnswered(f"vtorque-node on {host}", "gave no answer in time")
        # by single bytes: what follows a line is another's
        byte = os.read(stdout, 1)
        if not byte or len(line) > LIMIT:
            raise NotAnswered(f"vtorque-node on {host}", "its connection ended without an answer")
        line += byte
    try:
        answer: Answer = json.loads(line)
        if answer["ok"] is True:
            return answer
        fault = error_from_dict(answer["error"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        seen = printable(line.decode(errors="replace"))[:200]
        raise NotAnswered(f"vtorque-node on {host}", f"no answer: {seen}") from None
    raise fault


def end_call(call: subprocess.Popen[bytes]) -> None:
    """Nobody listens to a call any more."""
    for stream in (call.stdin, call.stdout):
        with contextlib.suppress(OSError):
            t.cast("t.IO[bytes]", stream).close()
    with contextlib.suppress(OSError):
        call.kill()
    call.wait()


class Channel:
    """A way to a socket on another node, whose program there loads while nobody is connected yet; a context manager.

    Args:
        host: its name.
        message: names the socket, and says for how long that node waits until there can be one.

    Raises:
        OSError: ssh does not start.
    """

    def __init__(self, host: str, message: Stream) -> None:
        self._host = host
        self._message = message
        self._unused = [open_call(host, message)]

    def serve(self, connection: socket.socket) -> None:
        """Carry the bytes of a connection here to that socket, and back; a second one has a call of its own."""
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)  # whoever is connected sees the end of it
            stack.enter_context(contextlib.suppress(OSError, VTorqueError))
            call = self._take_call(stack)
            stdin = t.cast("t.IO[bytes]", call.stdin)
            stdin.write(b"\n")  # now it is wanted
            read_answer(call, self._host, Deadline.after(ANSWER_S))
            sink = os.dup(stdin.fileno())
            stdin.close()
            relay.carry(connection, t.cast("t.IO[bytes]", call.stdout).fileno(), sink)

    def _take_call(self, stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        """Return a call that the node has taken, and that ends with `stack`: the early one if it can be had.

        Raises:
            OSError, VTorqueError: it takes none.
        """
        with contextlib.suppress(IndexError, VTorqueError):  # another connection has it, or its node gave it up
            return self._await_yes(self._unused.pop(), stack)
        return self._await_yes(open_call(self._host, self._message), stack)

    def _await_yes(self, call: subprocess.Popen[bytes], stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        stack.callback(end_call, call)
        read_answer(call, self._host, Deadline.after(ANSWER_S))
        return call

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_error: object) -> None:
        while self._unused:
            end_call(self._unused.pop())


def send_files(host: str, message: Stream, contents: t.Mapping[str, bytes], arrival: subprocess.Popen[bytes]) -> Answer:
    """Give another node small files of a guest, when it has a place for it.

    Args:
        host: its name.
        message: says of which guest they are.
        contents: of each file.
        arrival: the open call that asks for that place; what it answers before there is one is a refusal.

    Returns:
        The node's last answer.

    Raises:
        VTorqueError: it did not take them.
        OSError: the same.
    """
    if message.channel != FILES:
        raise ValueError(message.channel)
    call = open_call(host, message)
    try:
        deadline = Deadline.after(message.timeout_s + ANSWER_S)
        place, refusal = t.cast("t.IO[bytes]", call.stdout), t.cast("t.IO[bytes]", arrival.stdout)
        if place not in select.select([place, refusal], [], [], deadline.left_s(86_400.0))[0]:
            read_answer(arrival, host, deadline)
            raise NotAnswered(f"vtorque-node on {host}", "took in a guest without its files")
        read_answer(call, host, deadline)
        stdin = t.cast("t.IO[bytes]", call.stdin)
        for name, content in contents.items():
            for data in (json.dumps({"name": name, "size": len(content)}).encode() + b"\n", content):
                rest = memoryview(data)
                while rest:
                    rest = rest[stdin.write(rest) :]
        stdin.close()
        return read_answer(call, host, deadline)
    finally:
        end_call(call)
