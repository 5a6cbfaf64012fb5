# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of vTorque's guests is on this node: domains, directories, slots, processes, network devices."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re

from ..records import job_key
from . import slots
from .domain import Domains
from .neighbours import SYS_NET
from .settings import NodeSettings

PROC = pathlib.Path("/proc")
_KEY = re.compile(r"([0-9]+)(?:-([0-9]+))?\.(.+)\.([0-9]+)")


@dataclasses.dataclass(frozen=True)
class Remain:
    """One thing that is there.

    Attributes:
        kind: `domain`, `directory`, `slot`, `process` or `network device`.
        name: which one.
        key: `records.job_key` of the start it belongs to; "" when that cannot be told.
    """

    kind: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" of {self.key}" if self.key not in ("", self.name) else "")


def start_of(key: str) -> tuple[str, int] | None:
    """Job id and start that a key was made of (`records.job_key`); None when it is none."""
    found = _KEY.fullmatch(key)
    if not found:
        return None
    member = f"[{found[2]}]" if found[2] else ""
    return f"{found[1]}{member}.{found[3]}", int(found[4])


def remains(settings: NodeSettings, domains: Domains) -> tuple[Remain, ...]:
    """Everything that is there, of whatever start.

    Raises:
        NodeFault: libvirt does not answer; then it is not known what is there.
    """
    found = [
        Remain("domain", facts.name, job_key(facts.mark.job_id, facts.mark.start))
        for facts in domains.list() if facts.mark
    ]  # fmt: skip
    return (*found, *remains_without_libvirt(settings))


def remains_without_libvirt(settings: NodeSettings) -> tuple[Remain, ...]:
    """What can be seen without asking libvirt."""
    owners = slots.taken(settings)
    found = [Remain("slot", str(slot), owner.partition("/")[0]) for slot, owner in owners.items()]
    if settings.guests_dir.is_dir():
        found += [Remain("directory", path.name, path.name) for path in sorted(settings.guests_dir.iterdir())]
    found += _processes(settings.guests_dir)
    for device in sorted(SYS_NET.glob("vtq[0-9]*")):
        owner = owners.get(int(device.name[3:]), "") if device.name[3:].isdecimal() else ""
        found.append(Remain("network device", device.name, owner.partition("/")[0]))
    return tuple(found)


def _processes(guests_dir: pathlib.Path) -> list[Remain]:
    """Every qemu that has a file of a guest of ours among its arguments; only for looking, arguments prove nothing."""
    pattern = re.compile(re.escape(f"{guests_dir}/") + r"([^/\0]+)/")
    found = []
    for process in sorted(PROC.glob("[0-9]*"), key=lambda path: int(path.name)):
        # a process may end while it is looked at
        with contextlib.suppress(OSError):
            arguments = (process / "cmdline").read_bytes().decode("utf-8", "replace")
            if "qemu" in arguments.partition("\0")[0] and (owner := pattern.search(arguments)):
                found.append(Remain("process", process.name, owner[1]))
    return found
