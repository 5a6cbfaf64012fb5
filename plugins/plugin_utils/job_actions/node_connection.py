# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mother superior speaks with `vtorque-node` on all nodes of a job at the same time, a line each way at a time.

One process waits for all of them.  For each node it costs one ssh: a process of Ansible's own for each host and step
costs five times as much (docs/adr/0001-a-playbook-for-each-job.md).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import selectors
import socket
import subprocess
import time
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import VTorqueError
from ...module_utils.frozen import frozen
from ...module_utils.system.clock import Deadline
from ...module_utils.system.process.environment import ROOT_ENVIRONMENT
from ...module_utils.system.process.process_limits import WORDS, WORDS_BYTES, leash
from ...module_utils.time_budget import NODE_CALL_END_S

LIMIT = (1 << 20) + 1
"""Bytes of an answer that are read; one that is longer is refused by its reader."""
CHUNK = 1 << 16
COMPLAINT = 4096


@frozen
class Reply:
    """What a node's program said to one line.

    Attributes:
        status: 0 while it runs, else its exit status.
        output: one line; empty when it ended without one.
        complaint: the end of its standard error.
    """

    status: int
    output: bytes
    complaint: bytes


@leaves_nothing
def local_command(program: pathlib.Path) -> list[str]:
    """The call of `vtorque-node` on this machine."""
    return [str(program)]


class BegunCall(t.Protocol):
    """The way to a program that was begun before, and asked already (`faststart/node_socket.py`).

    Attributes:
        socket: descriptor of our end of its standard input and output.
        complaint: descriptor of its standard error.
        asked_s: when it was asked, in seconds of the monotonic clock.
    """

    @property
    def socket(self) -> int: ...

    @property
    def complaint(self) -> int: ...

    @property
    def asked_s(self) -> float: ...


class NodeCall:
    """A conversation with one node's program; a context manager.

    Args:
        node: its name.
        command: calls the program.
        begun: the program that the hook has begun, and asked the same question already.
        far: it is an ssh to another node, which might say anything; our own program writes files of any size.

    Attributes:
        asked_s: when the first question was put, in seconds of the monotonic clock.
    """

    @leaves_nothing
    def __init__(
        self, node: str, command: t.Sequence[str], begun: BegunCall | None = None, *, far: bool = False
    ) -> None:
        self.node = node
        self.asked_s = 0.0
        self._command = list(command)
        self._begun = begun
        self._far = far
        self._asked = b""
        self._waiting = False
        self._process: subprocess.Popen[bytes] | None = None
        self._peer: socket.socket | None = None
        self._complaint: int | None = None
        self._heard = bytearray()
        self._without_newline = 0  # so many bytes of it: another node might send it in a million pieces

    def __enter__(self) -> NodeCall:
        if self._begun is None:
            self._begin()
        else:
            self._peer = socket.socket(fileno=os.dup(self._begun.socket))
            self._complaint = os.dup(self._begun.complaint)
        return self

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        self._peer = ours
        self._complaint = os.memfd_create("vtorque-node", os.MFD_CLOEXEC)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    self._command,
                    cwd="/",
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._complaint,
                    env=ROOT_ENVIRONMENT,
                )
            except OSError as error:
                self.__exit__()
                raise VTorqueError(f"vtorque-node on {self.node} was not run", str(error)) from error
        if self._far:
            leash(self._process.pid, WORDS)

    def _begin_again(self) -> None:
        """What the hook began has ended without an answer; asked again, a node answers the same."""
        self._begun = None
        former, complaint = self._open, t.cast(int, self._complaint)
        self._begin()
        # whoever waits for us knows the number of our descriptor
        fresh = self._open
        os.dup2(fresh.fileno(), former.fileno(), inheritable=False)
        fresh.close()
        self._peer = former
        os.close(complaint)
        self.send_line(self._asked)

    def hang_up(self) -> None:
        """Nobody listens any more: that is a cancel for a program that is still at work."""
        peer, self._peer = self._peer, None
        if peer is None:
            return
        peer.close()
        if self._process is not None and self._waiting:
            self._process.kill()  # ssh would stay until the other end speaks; `vtorque-node` has a worker that undoes

    def __exit__(self, *_error: object) -> None:
        """Hang up, and see to it that the program is gone."""
        self.hang_up()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(NODE_CALL_END_S)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        complaint, self._complaint = self._complaint, None
        if complaint is not None:
            os.close(complaint)

    @leaves_nothing
    def fileno(self) -> int:
        """Readable when it said something or ended."""
        return self._open.fileno()

    def send_request(self, line: bytes) -> None:
        """Put the first question."""
        self._asked = line
        self._waiting = True
        self.asked_s = time.monotonic() if self._begun is None else self._begun.asked_s
        if self._begun is None:
            self.send_line(line)

    def send_line(self, line: bytes) -> None:
        """Put a further one; a program that takes none any more is heard to have ended."""
        self._waiting = True
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            self._open.sendall(line + b"\n")

    def read_reply(self) -> Reply | None:
        """Read what there is.

        Returns:
            The reply, when it is whole; None: it is not yet.
        """
        try:
            data = self._open.recv(CHUNK)
        except ConnectionError:
            data = b""
        self._heard += data
        end = self._heard.find(b"\n", self._without_newline)
        self._without_newline = len(self._heard)
        if end >= 0 or len(self._heard) >= LIMIT:
            line = bytes(self._heard[: end if 0 <= end < LIMIT else LIMIT])
            del self._heard[: end + 1 if end >= 0 else len(self._heard)]
            self._without_newline = 0
            self._waiting = False
            self._begun = None  # it has answered: from now on it is as any
            return Reply(0, line, self._complained())
        if data:
            return None
        if self._begun is not None and not self._heard:
            self._begin_again()
            return None
        status = 0
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(NODE_CALL_END_S)
        return Reply(status, bytes(self._heard), self._complained())

    @property
    def _open(self) -> socket.socket:
        if self._peer is None:
            raise VTorqueError(f"vtorque-node on {self.node}", "the conversation is over")
        return self._peer

    def _complained(self) -> bytes:
        if self._complaint is None:
            return b""
        size = os.fstat(self._complaint).st_size
        if self._far and size >= WORDS_BYTES:
            return b"its standard error has no end"
        return os.pread(self._complaint, COMPLAINT, max(0, size - COMPLAINT))


def read_replies(
    calls: t.Sequence[NodeCall],
    read: t.Callable[[str, Reply], None],
    deadline: Deadline,
    *,
    patience_s: float = float("inf"),
    replace: t.Callable[[str, VTorqueError], NodeCall | None] = lambda _node, _error: None,
) -> dict[str, VTorqueError]:
    """Wait for a reply of each.

    Args:
        calls: each has been asked something.
        read: is given the name of a node and its reply, and raises VTorqueError when it is a bad one.
        deadline: when all must have replied.
        patience_s: seconds for the others once one has failed.
        replace: is given the name of a node that failed and its error, and returns the call of another node in its
            place, which has been asked; None: there is none.

    Returns:
        What failed, by the node's name, in the order of time.
    """
    errors: dict[str, VTorqueError] = {}
    until = deadline
    with selectors.PollSelector() as selector:
        for one in calls:
            selector.register(one, selectors.EVENT_READ, one)
        while selector.get_map() and not until.passed:
            for key, _events in selector.select(until.left_s(86_400.0)):
                call: NodeCall = key.data
                reply = call.read_reply()
                if reply is None:
                    continue
                selector.unregister(call)
                try:
                    read(call.node, reply)
                except VTorqueError as error:
                    if not errors and (other := replace(call.node, error)) is not None:
                        selector.register(other, selectors.EVENT_READ, other)
                        continue
                    if not errors and patience_s < until.left_s():
                        until = Deadline.after(patience_s)
                    errors[call.node] = error
        late = [key.data.node for key in selector.get_map().values()]
    if errors:  # the others were not given their time
        return errors
    return {node: VTorqueError(f"vtorque-node on {node}", "gave no answer in time") for node in late}
