# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest as the record of its job tells of it, and values of a record, which may be garbage."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...text import printable
from ...wire.update_result import format_outcome


@dataclasses.dataclass(frozen=True, slots=True)
class Guest:
    """A guest of a job, as its record tells of it; None: it does not say.

    Attributes:
        seconds: that each phase took on its node.
        used: what it used, by the names of `guestspec.GuestUse`.
        updates: what became of its security updates, and how many packages that were; "": there were to be none.
        updates_words: why they did not all go well.
        vcpu_cores: the node's cores of each vCPU, where it had cores of its own; (): it had none.
        other_cores: those of all other threads of it.
        io_least: how many of those, the first ones, virtual I/O had in any case; None: their number did not change.
        devices: addresses of the host's devices that it had.
        networks: its addresses on further networks, each with the network's name.
        cells: its NUMA cells, each as `<cell of the node>:<vCPUs>:<MiB>`; (): it had none of its own.
        pages: of which size its memory was made; "": of ordinary ones.
        warm: whether it started from a template, `yes` or `no, because ...`; "": the site had no warm starts.
        side_channels: which promise of the site's was kept for it; "": none.
    """

    rank: int | None
    name: str
    node: str
    image: str
    address: str
    vcpus: int | None
    ram_mib: int | None
    seconds: dict[str, float]
    used: dict[str, float]
    updates: str = ""
    updates_words: str = ""
    vcpu_cores: tuple[str, ...] = ()
    other_cores: str = ""
    io_least: int | None = None
    devices: str = ""
    networks: str = ""
    cells: tuple[str, ...] = ()
    pages: str = ""
    warm: str = ""
    side_channels: str = ""


def read_guest(one: t.Mapping[str, t.Any]) -> Guest:
    """Return what a record says of one guest.

    Args:
        one: the guest's part of the record; may be garbage.
    """
    updates = mapping_of(one.get("updates"))
    return Guest(
        rank=count_of(one.get("rank")),
        name=text_of(one.get("name")),
        node=text_of(one.get("node")),
        image=text_of(one.get("image")),
        address=text_of(one.get("address")),
        vcpus=count_of(one.get("vcpus")),
        ram_mib=count_of(one.get("ram_mib")),
        seconds=figures_of(one.get("seconds")),
        used=figures_of(one.get("used")),
        updates=format_outcome(
            text_of(updates.get("outcome")), figure_of(updates.get("packages")), figure_of(updates.get("seconds"))
        ),
        updates_words=text_of(updates.get("reason")),
        vcpu_cores=_lists(one.get("vcpu_cores"), r"[0-9,-]{1,500}"),
        other_cores=text_of(one.get("other_cores")),
        io_least=count_of(one.get("io_least")),
        devices=text_of(one.get("devices")),
        networks=text_of(one.get("networks")),
        cells=_lists(one.get("cells"), r"[0-9]{1,5}:[0-9,-]{1,500}:[0-9]{1,9}"),
        pages=text_of(one.get("pages")),
        warm=text_of(one.get("warm")),
        side_channels=text_of(one.get("side_channels")),
    )


def _lists(value: object, form: str) -> tuple[str, ...]:
    """The lists of a form in a text; what else may stand in it is none."""
    found = value.split(";") if isinstance(value, str) else []
    return tuple(text for text in found if re.fullmatch(form, text))


def text_of(value: object) -> str:
    """Return a text that may be printed, of bounded length; "" for anything else."""
    return printable(value[:500]) if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """Return a whole number that is not negative; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def figure_of(value: object) -> float | None:
    """Return a number that is not negative; None for anything else."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18
    return t.cast(float, value) if good else None


def figures_of(value: object) -> dict[str, float]:
    """Return the numbers of a mapping, by their names."""
    found = {text_of(key): figure_of(one) for key, one in mapping_of(value).items()}
    return {key: one for key, one in found.items() if one is not None}


def mapping_of(value: object) -> t.Mapping[str, t.Any]:
    """Return a mapping; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[t.Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []
