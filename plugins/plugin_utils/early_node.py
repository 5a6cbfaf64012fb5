# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mother superior's own `vtorque-node`, begun while Ansible loads on the other core.

It is the same program with the same request and answer; a socket that Ansible's worker inherits stands for the
connection.  A third of a second of loading is over when it is asked.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import typing as t

from ..module_utils.job.bounded import clean_environment

VARIABLE = "VTORQUE_EARLY_NODE"
"""Two descriptors of this process: the socket, and the file with what the program complained of."""
CHUNK = 1 << 16
LIMIT = (1 << 20) + 1
"""Bytes of an answer that are read; one that is longer is refused by its reader."""


def begin(command: t.Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the program; `find` in this process, or in one that it forks, gives the way to it.

    Args:
        command: the call; it reads a request from its standard input, and ends when there is none.

    Returns:
        The process, to be held: it is reaped when ours ends.

    Raises:
        OSError: it could not be started.
    """
    ours, theirs = socket.socketpair()
    complaint = os.memfd_create("vtorque-node", os.MFD_CLOEXEC)
    with theirs:
        process = subprocess.Popen(
            list(command), env=clean_environment(), cwd="/",
            stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=complaint,
        )  # fmt: skip
    os.environ[VARIABLE] = f"{ours.detach()}.{complaint}"
    return process


@dataclasses.dataclass(frozen=True)
class EarlyNode:
    """The way to it: descriptors of its socket and of its complaints."""

    socket: int
    complaint: int

    def ask(self, request: bytes) -> tuple[int, bytes, bytes] | None:
        """Put the request, once.

        Args:
            request: JSON, for its standard input.

        Returns:
            Status, standard output and standard error, as of a command; None: it takes no request (any more).
        """
        with socket.socket(fileno=os.dup(self.socket)) as peer:
            try:
                peer.sendall(request)
                peer.shutdown(socket.SHUT_WR)
            except OSError:
                return None
            answer = b""
            while len(answer) < LIMIT and (data := peer.recv(CHUNK)):
                answer += data
        return int(not answer), answer, os.pread(self.complaint, CHUNK, 0)


def find(environment: t.Mapping[str, str]) -> EarlyNode | None:
    """The way to the program that `begin` started here; None: there is none."""
    first, _dot, second = environment.get(VARIABLE, "").partition(".")
    return EarlyNode(int(first), int(second)) if first.isdecimal() and second.isdecimal() else None
