# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node answers about itself: cells, cores, pages, devices, and what guests of jobs have of them.

A strict form, as the other answers of nodes: none of it is trusted where it arrives.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..errors import VTorqueError
from . import pci
from .form import from_dict, number_field, part_field, text_field
from .messages import HOST_NAME

VERSION = 1
DO = "topology"
CORES = r"[0-9]{1,5}(,[0-9]{1,5}){0,8191}"
"""Processors as the kernel counts them, each by itself: no range that could stand for more than was sent."""
FREE, LEASED, QUARANTINE, UNUSABLE = "free", "leased", "quarantine", "unusable"
STATES = (FREE, LEASED, QUARANTINE, UNUSABLE)
"""Of a device: a guest could have it, one has it, it is in quarantine, or something speaks against it."""
NO_CELL = -1
_START = r"[A-Za-z0-9.-]{1,300}"
_NUMBERS = "(" + CORES + ")?"


@dataclasses.dataclass(frozen=True, slots=True)
class CoreFacts:
    """One physical core.

    Attributes:
        threads: the processors that the kernel counts in it.
        socket: which package it is in.
        cache: which of its cell's last-level caches it shares.
    """

    threads: str = text_field(CORES)
    socket: int = number_field(-1, 100_000)
    cache: int = number_field(-1, 100_000)


@dataclasses.dataclass(frozen=True, slots=True)
class PageFacts:
    """Huge pages of one size in one cell; of ordinary pages nothing is said.

    Attributes:
        kib: their size.
        total: how many the cell has set apart.
        free: how many of them nobody has.
    """

    kib: int = number_field(1, 2**40)
    total: int = number_field(0, 2**40)
    free: int = number_field(0, 2**40)


@dataclasses.dataclass(frozen=True, slots=True)
class CellFacts:
    """One NUMA cell.

    Attributes:
        memory_mib: of it; 0: it has none.
        distances: to each cell, `0:10 1:21`.
    """

    number: int = number_field(0, 100_000)
    memory_mib: int = number_field(0, 2**40)
    cores: tuple[CoreFacts, ...] = part_field()
    pages: tuple[PageFacts, ...] = part_field()
    distances: str = text_field(r"([0-9]{1,6}:[0-9]{1,6}( [0-9]{1,6}:[0-9]{1,6}){0,1023})?")


@dataclasses.dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that the site lists for the node.

    Attributes:
        pci_class: by which users ask for it.
        cell: that it is near; `NO_CELL`: it is not known.
        state: one of `STATES`.
        start: whose it is (`state.layout.job_key`); "": nobody's.
    """

    address: str = text_field(pci.DEVICE)
    pci_class: str = text_field(pci.CLASS)
    cell: int = number_field(NO_CELL, 100_000)
    state: str = text_field("|".join(STATES))
    start: str = text_field(f"({_START})?")


@dataclasses.dataclass(frozen=True, slots=True)
class HeldGuest:
    """What a guest of a job has of the node.

    Attributes:
        start: of its job (`state.layout.job_key`).
        memory_mib: of the guest.
        vcpu_cores: the processors of each vCPU, in their order and parted by `;`; "": it has none of its own.
        other_cores: those of all other threads, or of all threads where vCPUs have none of their own; "": any.
        io_least: how many of those, the first ones, virtual I/O has in any case; 0: their number does not change.
    """

    start: str = text_field(_START)
    name: str = text_field(HOST_NAME)
    memory_mib: int = number_field(0, 2**40)
    vcpu_cores: str = text_field(f"({CORES}(;{CORES}){{0,4095}})?")
    other_cores: str = text_field(_NUMBERS)
    io_least: int = number_field(0, 4096, default=0)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeTopology:
    """A node.

    Attributes:
        made: when it was looked at, in seconds since the epoch, by the node's clock.
        guests: those that are there, and those that are being made.
    """

    version: int = number_field(VERSION, VERSION)
    node: str = text_field(HOST_NAME)
    made: float = number_field(0, 10**11)
    cells: tuple[CellFacts, ...] = part_field()
    devices: tuple[HeldDevice, ...] = part_field()
    guests: tuple[HeldGuest, ...] = part_field()

    def without_jobs(self) -> NodeTopology:
        """Return the same without what jobs have: what every user may read."""
        devices = tuple(
            dataclasses.replace(one, start="", state=FREE if one.state == LEASED else one.state) for one in self.devices
        )
        return dataclasses.replace(self, devices=devices, guests=())


class TopologyRequest(t.NamedTuple):
    """A node is asked what it has."""

    def to_dict(self) -> dict[str, t.Any]:
        """Return it as it goes over the connection."""
        return {"version": VERSION, "do": DO}


def request_from_dict(data: t.Mapping[str, t.Any]) -> TopologyRequest:
    """Return what a node was asked.

    Args:
        data: what came.

    Raises:
        VTorqueError: it is not of the form.
    """
    if dict(data) != TopologyRequest().to_dict():
        raise VTorqueError("the request for a topology", "is of another version", "install the same one everywhere")
    return TopologyRequest()


def topology_from_dict(data: object) -> NodeTopology:
    """Return what a node has answered.

    Raises:
        FormError: it is not of the form.
    """
    return from_dict(NodeTopology, data)


def numbers(text: str) -> tuple[int, ...]:
    """Return the processors of a text of the form of `CORES`; () of ""."""
    return tuple(map(int, text.split(","))) if text else ()


def joined(cores: t.Iterable[int]) -> str:
    """Return the text that `numbers` reads."""
    return ",".join(map(str, cores))
