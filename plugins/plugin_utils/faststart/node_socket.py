# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mother superior's own `vtorque-node`, asked by the hook while Ansible still loads.

It is the same program with the same requests and answers; a socket that Ansible inherits stands for the connection
(`job_actions/node_connection.py`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import socket
import time
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.frozen import frozen
from ...module_utils.state import layout
from ...module_utils.system import files
from ...module_utils.time_budget import EARLY_ANSWER_MARGIN_S
from ...module_utils.wire import form, messages

VARIABLE = "VTORQUE_EARLY_NODE"
"""Two descriptors of this process: the socket, and the file with what the program complained of."""


@leaves_nothing
def digest(part: messages.NodePart) -> str:
    """Return a digest of what a node is asked, whatever time it gets; keys are part of it."""
    text = json.dumps(form.to_dict(dataclasses.replace(part, timeout_s=0.0)), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


@frozen
class EarlyNode:
    """The way to it.

    Attributes:
        socket: a descriptor.
        complaint: a descriptor of the file with its standard error.
        asked_s: when the request was put, in seconds of the monotonic clock; 0: none was, as far as this process knows.
    """

    socket: int
    complaint: int
    asked_s: float = 0.0

    @property
    def variable(self) -> str:
        """For the environment of a process that inherits the descriptors."""
        return f"{self.socket}.{self.complaint}"

    def request(self, part: messages.NodePart, *, directory: pathlib.Path, until: float) -> None:
        """Put what the playbook will ask of this node, where time is left for it, and write down that it was put.

        Args:
            part: its request.
            directory: the run directory of the start.
            until: when the playbook is ended, in seconds of the monotonic clock.

        Raises:
            OSError: the program takes none (any more).
            VTorqueError: it was put, and that was not written down.
        """
        now = time.monotonic()
        asked = dataclasses.replace(part, timeout_s=round(until - now - EARLY_ANSWER_MARGIN_S, 3))
        if asked.timeout_s <= 0:
            return
        self.send(json.dumps(form.to_dict(asked), ensure_ascii=True).encode("ascii"))
        # last: whoever reads it waits for an answer, which nobody gives who was not asked
        files.write(directory / layout.ASKED, json.dumps({"digest": digest(part), "asked_s": round(now, 3)}))

    def send(self, request: bytes) -> None:
        """Put the request, once.

        Args:
            request: JSON in one line, for its standard input.

        Raises:
            OSError: it takes none (any more).
        """
        with socket.socket(fileno=os.dup(self.socket)) as peer:
            peer.sendall(request + b"\n")

    @leaves_nothing
    def close(self) -> None:
        """Let go of it; when nobody else holds it, that is a cancel."""
        os.close(self.socket)
        os.close(self.complaint)


@leaves_nothing
def find(environment: t.Mapping[str, str]) -> EarlyNode | None:
    """The way to the program that the hook has asked; None: it has asked none."""
    first, _dot, second = environment.get(VARIABLE, "").partition(".")
    return EarlyNode(int(first), int(second)) if first.isdecimal() and second.isdecimal() else None


def keep_from_programs(environment: t.Mapping[str, str]) -> None:
    """Let forks inherit the way to it, and no program: whoever holds it keeps a cancel from being heard."""
    if node := find(environment):
        os.set_inheritable(node.socket, False)
        os.set_inheritable(node.complaint, False)
