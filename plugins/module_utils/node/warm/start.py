# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest from a template: its disk, its memory behind another header, and the first order."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import typing as t

from ...errors import VTorqueError
from ...system.clock import Deadline
from ...time_budget import FIRST_ORDER_S
from ..domain.connection import Domains
from ..guest import agent, first_order
from .clone_xml import xml_of_clone
from .memory_feed import MemoryFeed
from .save_header import header_of, read_header
from .template import DISK, SEED, Template, note_use

FIFO = "memory.fifo"
_PIECE = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Clone:
    """A guest that is to be made from a template.

    Attributes:
        name: of its domain.
        directory: its own; root's.
        xml: as it would be after a cold start.
        agent: the node's end of its channel.
        order: makes the text of its first order, at the moment in which it is given.
    """

    name: str
    directory: pathlib.Path
    xml: str
    agent: pathlib.Path
    order: t.Callable[[], str]


def copy_disks(template: Template, directory: pathlib.Path) -> None:
    """Give a guest its disks.

    The overlay is a few MiB that the template's guest wrote, and stands on the image itself: nothing of the template is
    needed afterwards.

    Args:
        template: of the guest.
        directory: of the guest.

    Raises:
        OSError: they cannot be read or written.
        VTorqueError: the overlay is not what the template's record says.
    """
    if _copy(template.disk, directory / DISK) != template.record.disk_sha256:
        raise VTorqueError("the template's disk", "is not what its record says")
    _copy(template.seed, directory / SEED)


def _copy(source: pathlib.Path, target: pathlib.Path) -> str:
    """Copy a file with its holes, for root alone; returns its digest."""
    digest = hashlib.sha256()
    target.unlink(missing_ok=True)
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with source.open("rb", buffering=0) as stream:
            at = 0
            while piece := stream.read(_PIECE):
                digest.update(piece)
                if piece.strip(b"\0"):
                    os.pwrite(out, piece, at)
                at += len(piece)
        os.truncate(out, at)
    finally:
        os.close(out)
    return digest.hexdigest()


def start(template: Template, clone: Clone, domains: Domains, deadline: Deadline) -> None:
    """Have a guest run from a template, until it has obeyed its first order.

    What was made stays when it fails.

    Args:
        template: of its shape.
        clone: what it is to be; its disks are there (`copy_disks`).
        domains: libvirt.
        deadline: of the whole.

    Raises:
        OSError, VTorqueError: it does not run; says why.
    """
    note_use(template)
    with template.memory.open("rb") as stream:
        saved = read_header(stream)
    xml, devices = xml_of_clone(saved.xml, clone.xml)
    header = header_of(xml, saved.cookie)
    fifo = clone.directory / FIFO
    digest = template.record.memory_sha256
    with MemoryFeed(fifo, header, template.memory, saved.memory_at, digest, deadline) as feed:
        try:
            domains.restore_paused(fifo)
        except VTorqueError as error:
            if feed.why:
                raise VTorqueError("the template's memory", feed.why) from error
            raise
        feed.check()
    # its threads are where its XML has them; from here on it runs, with all that a cold start would give it
    domains.plug(clone.name, devices)
    domains.pause(clone.name, paused=False)
    channel = agent.Channel(clone.name, clone.agent, template.record.token)
    first_order.give(channel, clone.order(), Deadline.after(deadline.left_s(FIRST_ORDER_S)))
