# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines between processes: one value in JSON each, over a pipe or a socket."""

from __future__ import annotations

import json
import os
import typing as t


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however little is taken at once.

    Args:
        fd: a descriptor that blocks.
        data: bytes.

    Raises:
        BrokenPipeError: nobody reads any more.
        OSError: it cannot be written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def send_line(fd: int, value: t.Any) -> None:
    """Write a value as a line of ASCII.

    Args:
        fd: a descriptor that blocks.
        value: what JSON knows.

    Raises:
        BrokenPipeError: nobody reads any more.
        OSError: it cannot be written.
    """
    write_all(fd, json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n")


class LineReader:
    """Makes lines of what comes in pieces from our own processes.

    Whoever hears a guest or another node refuses a peer whose line has no end, or that sends it in a million pieces,
    and has a reader of its own for that (`node/guest/agent.py`, `job_actions/node_connection.py`).

    Args:
        longest: so many bytes of a line are taken, and those behind are dropped; None: all.

    Attributes:
        rest: the beginning of a line whose end has not come.
    """

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that this completes, without their ends.

        Args:
            data: the next piece.
        """
        *lines, rest = (self.rest + data).split(b"\n")
        self.rest = rest[: self._longest]
        return [line[: self._longest] for line in lines]
