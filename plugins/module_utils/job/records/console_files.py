# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The consoles that a start of a job has left: where each is, and its lines."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import stat
import typing as t

from ...errors import UserFault
from ...state import layout
from ...text import printable
from ..batch.host_match import same_host
from .job_record import JobRecord

LOG_LIMIT = 8 << 20
"""Bytes of a log or console that are read: its end, when it is longer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Consoles:
    """The consoles of a start.

    Attributes:
        here: those that this host has, by guest.
        elsewhere: the node of each of the others.
    """

    here: dict[str, pathlib.Path]
    elsewhere: dict[str, str]


def consoles(record: JobRecord) -> Consoles:
    """Where the consoles of a start are."""
    here: dict[str, pathlib.Path] = {}
    with contextlib.suppress(OSError):
        logs = sorted(record.directory.glob(f"*{layout.CONSOLE_END}"))
        here = {path.name.removesuffix(layout.CONSOLE_END): path for path in logs}
    elsewhere = {guest.name: guest.node for guest in record.guests if guest.name and guest.name not in here}
    return Consoles(here, elsewhere)


def choose_consoles(record: JobRecord, *, guest: str | None, node: str | None) -> dict[str, pathlib.Path]:
    """The consoles that are asked for and are here, by guest.

    Args:
        record: of the start.
        guest: only this one's.
        node: only those of this node's guests.

    Raises:
        UserFault: there is none here; says where there is one.
    """
    known = consoles(record)

    def wanted(name: str, its_node: str) -> bool:
        return (guest is None or name.lower() == guest.lower()) and (node is None or same_host(its_node, node))

    nodes = {one.name: one.node for one in record.guests}
    found = {name: path for name, path in known.here.items() if wanted(name, nodes.get(name) or node_of_guest(name))}
    if found:
        return found
    away = {name: place for name, place in known.elsewhere.items() if wanted(name, place)}
    if away:
        places = ", ".join(sorted(set(away.values())))
        raise UserFault(
            f"the console of {', '.join(sorted(away))}",
            "is not on this host, or its guest still runs",
            f"once the job has ended: vmgr job console {record.job_id} on {places}",
        )
    asked = f" of guest {guest}" if guest else f" of node {node}" if node else ""
    has = ", ".join(sorted({*known.here, *known.elsewhere})) or "none"
    raise UserFault(f"job {record.job_id}", f"no console{asked} was kept", f"guests of this start: {has}")


def node_of_guest(name: str) -> str:
    """The short name of the node that calls a guest so (`v<node>-<slot>`)."""
    return name.removeprefix("v").rpartition("-")[0]


def read_lines(path: pathlib.Path, *, limit: int = LOG_LIMIT) -> t.Iterator[str]:
    """The lines of a log or console, harmless on a terminal.

    Args:
        path: where.
        limit: greatest number of bytes; of a longer one the end.

    Raises:
        UserFault: it is not there, or not the caller's to read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UserFault(f"{path}", "is not there") from None
    except OSError as error:
        raise UserFault(f"{path}", error.strerror or str(error)) from error
    with os.fdopen(fd, "rb") as stream:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise UserFault(f"{path}", "is not a file")
        if facts.st_size > limit:
            stream.seek(facts.st_size - limit)
            stream.readline()
            yield f"... the first {stream.tell()} bytes are left out"
        for line in stream:
            yield printable(line.decode("utf-8", "replace").rstrip("\r\n").expandtabs())
