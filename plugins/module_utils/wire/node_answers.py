# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes answer about the guests of a job: strict forms, as those of `messages.py`, for none of it is trusted."""

from __future__ import annotations

import dataclasses

from ..effects import leaves_nothing
from ..frozen import frozen
from ..site_lists.guest_networks import ADDRESSES
from . import pci
from .form import number_field, part_field, text_field
from .messages import ADDRESS, HOST_NAME, JOB_ID, MAC, PUBLIC_KEY, RDMA_KINDS, USER_NAME

CELL = r"[0-9]{1,5}:[0-9,-]{1,8192}:[0-9]{1,9}"

RDMA_DEVICE = rf"vrdma:({'|'.join(RDMA_KINDS)})(:{pci.ADDRESS})?"
DEVICE = rf"({pci.DEVICE}|unclot:[0-9]{{1,8}}M|{RDMA_DEVICE})"


@frozen
class GuestFacts:
    """A guest that is ready: the node's answer, and untrusted where it arrives (hence the forms).

    Attributes:
        name: host name of the guest, `v<node>-<slot>`.
        timings_s: seconds that each phase took on the node (`disk`, `seed`, `start`, `address`, `ready`).
        vcpu_cores: the node's cores on which each vCPU runs, lists in their order, parted by `;`; "": on all of the
            job's.
        other_cores: the same for the threads of qemu that are no vCPU's.
        io_least: how many of `other_cores`, the first ones, virtual I/O has in any case, and the rest under load;
            0: `other_cores` are for all of these threads, whatever the load is.
        devices: the host's devices that it has: addresses, or `unclot:64M` of a region that it shares,
            `vrdma:rxe` of an RDMA device.
        cells: its NUMA cells in their order, parted by `;`, each as the node's cell that has its memory, its vCPUs and
            its MiB (`0:0-3:4096`); "": it has none.
        pages: of which size its memory is made (`2M`); "": of ordinary ones.
        networks: its addresses on further networks, in the order of its cards: `fast=10.9.1.1 mine=172.31.0.1`.
        warm: whether it started from a template, `yes` or `no, because ...`; "": the site has no warm starts.
        side_channels: which promise of the site's was kept for it (`exclusive`, `cores`, `strict`); "": none.
    """

    rank: int = number_field(0, 100_000)
    name: str = text_field(HOST_NAME)
    mac: str = text_field(MAC)
    address: str = text_field(ADDRESS)
    timings_s: dict[str, float] = part_field()
    vcpu_cores: str = text_field(r"[0-9,;-]{0,65536}", default="")
    other_cores: str = text_field(r"[0-9,-]{0,8192}", default="")
    io_least: int = number_field(0, 4096, default=0)
    cells: str = text_field(f"({CELL}(;{CELL}){{0,1023}})?", default="")
    pages: str = text_field(r"([0-9]{1,9}[MGK])?", default="")
    devices: str = text_field(f"({DEVICE}( {DEVICE})*)?", default="")
    networks: str = text_field(ADDRESSES, default="")
    warm: str = text_field(r"(yes|no, because [^\x00-\x1f\x7f]{1,300})?", default="")
    side_channels: str = text_field("(exclusive|cores|strict)?", default="")


NOT_KNOWN = -1
"""In place of a figure of `GuestUse` that nobody could tell."""
_MOST = 2**63 - 1


CONSOLE_LENGTH = 1 << 16
"""Characters of a console's end that a node tells."""


@frozen
class GuestConsole:
    """The end of a console of a guest that was taken away: the node's answer, and untrusted where it arrives.

    Attributes:
        name: host name of the guest.
        end: the last lines.
    """

    name: str = text_field(HOST_NAME)
    end: str = text_field(rf"(?s:.{{1,{CONSOLE_LENGTH}}})")


@frozen
class GuestUse:
    """What a guest had used when it was taken away: the node's answer, and untrusted where it arrives.

    Attributes:
        name: host name of the guest.
        cpu_s: processor time of its process, in seconds.
        ram_peak_bytes: the most memory that its process has held.
        read_bytes: from its disks.
        written_bytes: to its disks.
        received_bytes: over its network.
        sent_bytes: over its network.
        wait_s: seconds in which its vCPUs were ready and waited for a processor of the node, all of them together.
        io_cores_most: the most cores at a time that virtual I/O of the job's guests on its node used, of its own.
        io_changes: how often their number changed.
    """

    name: str = text_field(HOST_NAME)
    cpu_s: float = number_field(NOT_KNOWN, 10**12)
    ram_peak_bytes: int = number_field(NOT_KNOWN, _MOST)
    read_bytes: int = number_field(NOT_KNOWN, _MOST)
    written_bytes: int = number_field(NOT_KNOWN, _MOST)
    received_bytes: int = number_field(NOT_KNOWN, _MOST)
    sent_bytes: int = number_field(NOT_KNOWN, _MOST)
    wait_s: float = number_field(NOT_KNOWN, 10**12, default=NOT_KNOWN)
    io_cores_most: int = number_field(NOT_KNOWN, 4096, default=NOT_KNOWN)
    io_changes: int = number_field(NOT_KNOWN, 10**9, default=NOT_KNOWN)

    @leaves_nothing
    def known(self) -> dict[str, float]:
        """The figures that are known, by name, as a record holds them."""
        figures = dataclasses.asdict(self)
        return {key: figure for key, figure in figures.items() if key != "name" and figure != NOT_KNOWN}


@frozen
class BareHost:
    """A host of a mixed job that stays bare: the node's answer, and untrusted where it arrives.

    Attributes:
        address: where guests reach its sshd.
        host_key: the public ssh key that answers there.
    """

    address: str = text_field(ADDRESS)
    host_key: str = text_field(PUBLIC_KEY)


@frozen
class SavedStart:
    """A start of a suspended job that has guests on a node's disk: the node's answer, and untrusted where it arrives.

    Attributes:
        job_id: of the job.
        start: its number.
        user: its owner, by name, or by number where the node has no name; "": the node does not know.
        node: that has its guests.
        since: when the first of them was saved, in seconds since the epoch by the node's clock.
        guests: how many are saved.
        bytes: that they take of the disk.
    """

    job_id: str = text_field(JOB_ID)
    start: int = number_field(0, 2**31)
    user: str = text_field(rf"({USER_NAME}|[0-9]{{1,10}})?")
    node: str = text_field(HOST_NAME)
    since: float = number_field(0, 10**11)
    guests: int = number_field(0, 100_000)
    bytes: int = number_field(0, _MOST)
