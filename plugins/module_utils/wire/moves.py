# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of a move: a guest goes on, on another node than its job has, without standing still for long."""

from __future__ import annotations

from ..frozen import frozen
from .form import number_field, part_field, text_field
from .messages import ADDRESS, HOST_NAME, JOB_ID, MAC, NodePart
from .node_answers import GuestFacts

FILES, LIBVIRT, MEMORY, DISK, STATE = "files", "libvirt", "memory", "disk", "state"
"""What goes over a connection of a move: what a guest has besides its disk; libvirt's own calls; what the guest has in
memory; what it has written to its disk; or nothing but the question whether it runs there."""
_ADDRESSES = f"({ADDRESS}(,{ADDRESS}){{0,65535}})?"


@frozen
class Arrival:
    """What the node of a guest asks of a spare node that is set aside for the guest's job: to take the guest in.

    Attributes:
        do: `arrive`.
        source: where the guest runs.
        part: as the guest was asked for, with the spare node's name.
        facts: of the guest, which keeps its name, its MAC address and its address.
        uuid: of its domain.
        token: makes the lines of its channel recognisable.
        job: addresses of all guests of the job, parted by commas, where guests are confined.
        processor: SHA-256 of which processor the node has; "": the guest has one that is emulated.
    """

    version: int = number_field(1, 1)
    do: str = text_field("arrive")
    source: str = text_field(HOST_NAME)
    part: NodePart = part_field()
    facts: GuestFacts = part_field()
    uuid: str = text_field(r"[0-9a-f-]{36}")
    token: str = text_field(r"[0-9a-f]{32}", secret=True)
    job: str = text_field(_ADDRESSES, default="")
    processor: str = text_field(r"([0-9a-f]{64})?", default="")


@frozen
class Stream:
    """The first line of a connection of a move; where the answer is yes, the bytes of its channel follow.

    For a socket a line feed comes before them, once it is wanted, and a second answer, once it is connected.

    Attributes:
        do: `stream`.
        node: who is asked.
        guest: its host name.
        channel: what goes over it.
        timeout_s: seconds until the other end must be there.
    """

    version: int = number_field(2, 2)
    do: str = text_field("stream")
    job_id: str = text_field(JOB_ID)
    start: int = number_field(0, 2**31)
    node: str = text_field(HOST_NAME)
    guest: str = text_field(HOST_NAME)
    channel: str = text_field("files|libvirt|memory|disk|state")
    timeout_s: float = number_field(0, 600)


@frozen
class Evacuation:
    """What an administrator asks of a node: to send its guests to spare nodes.

    Attributes:
        do: `evacuate`.
        node: who is asked.
        dry_run: say what would become of each, and move none.
        timeout_s: seconds for one move.
    """

    version: int = number_field(1, 1)
    do: str = text_field("evacuate")
    node: str = text_field(HOST_NAME)
    dry_run: bool = False
    timeout_s: float = number_field(10, 3600, default=600.0)


_CLAUSE = r"[^\x00-\x1f\x7f]{0,2000}"


@frozen
class Evacuee:
    """What became of a start's guest, or would: the node's answer, and untrusted where it arrives.

    Attributes:
        guest: its host name.
        target: the node that has it now, or would get it; "": none.
        why: what kept it here; "": nothing.
        seconds: that its move took; 0: it was not moved.
        paused_s: for how long it stood still, as libvirt measured it; -1: that is not known.
    """

    job_id: str = text_field(JOB_ID)
    start: int = number_field(0, 2**31)
    guest: str = text_field(f"({HOST_NAME})?", default="")
    target: str = text_field(f"({HOST_NAME})?", default="")
    why: str = text_field(_CLAUSE, default="")
    seconds: float = number_field(0, 10**6, default=0.0)
    paused_s: float = number_field(-1, 10**6, default=-1.0)


@frozen
class MovedGuest:
    """A guest that has left its node while its job ran; a row of the job's record, and untrusted where it arrives.

    Attributes:
        source: where it ran.
        target: where it runs.
        at: when it had moved, in seconds since the epoch.
        seconds: that the move took.
        paused_s: for how long it stood still, as libvirt measured it; -1: that is not known.
    """

    guest: str = text_field(HOST_NAME)
    mac: str = text_field(MAC)
    source: str = text_field(HOST_NAME)
    target: str = text_field(HOST_NAME)
    at: float = number_field(0, 10**11)
    seconds: float = number_field(0, 10**6)
    paused_s: float = number_field(-1, 10**6, default=-1.0)

    @property
    def name(self) -> str:
        """The guest's host name, as other answers of a node have it."""
        return self.guest
