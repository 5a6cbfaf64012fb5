# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's map of vCPUs to cores (`-vm vcpu_pinning=FILE`): a format of our own, read strictly.

A line gives a vCPU its cores.  Cores count in the job's own list on the node, 0 first, so that a map does not depend
on where the batch system puts the job:

    # guest vcpu: cores        the guest may be left out where the node has one
    0: 1
    1: 2,3
    emulator: 0

The same reading for the user at submission and for root when the job starts.
"""

from __future__ import annotations

import re
import typing as t

from ...frozen import frozen
from ..request.attached_file import FileErrors, FileFault
from ..request.keys import PINNING
from ..request.value_types import format_value

MAX_BYTES = 1 << 16
MAX_LINES = 4096
MOST_CORES = 256
"""Of one vCPU."""
HIGHEST = 4095
EMULATOR = "emulator"
_LINE = re.compile(rf"(?:(?:(?P<guest>[0-9]+)[ \t]+)?(?P<vcpu>[0-9]+)|{EMULATOR})[ \t]*:(?P<cores>.*)")
_CORES = re.compile(r"([0-9]+)(?:-([0-9]+))?")
FORM = f"'VCPU: CORES', 'GUEST VCPU: CORES' or '{EMULATOR}: CORES' is due, as in '0: 2' or '0 1: 4-5,7'"


class MapErrors(FileErrors):
    """What is wrong with a map."""

    KEY = PINNING


@frozen
class VcpuMap:
    """What a map says.

    Attributes:
        vcpus: by guest of a node and vCPU, the cores of each, by positions in the list of the job's cores.
        lines: where that stands.
        emulator: the same for all other threads of all guests of the node; (): what is left.
    """

    vcpus: t.Mapping[tuple[int, int], tuple[int, ...]]
    lines: t.Mapping[tuple[int, int], int]
    emulator: tuple[int, ...] = ()

    @property
    def used(self) -> int:
        """How many cores vCPUs have."""
        return sum(map(len, self.vcpus.values()))

    @property
    def highest(self) -> int:
        """The greatest position that is named."""
        return max(max(cores) for cores in (*self.vcpus.values(), *([self.emulator] if self.emulator else [])))

    def cores_of(self, guest: int, vcpus: int) -> str:
        """Return the cores of a guest's vCPUs as a node reads them (`GuestSpec.vcpu_cores`)."""
        return ";".join(_format_cores(self.vcpus[guest, vcpu]) for vcpu in range(vcpus))

    @property
    def other_cores(self) -> str:
        """Return the cores of all other threads (`GuestSpec.other_cores`)."""
        return _format_cores(self.emulator)


def _format_cores(cores: t.Iterable[int]) -> str:
    return ",".join(map(str, cores))


def read(content: bytes, path: str) -> VcpuMap:
    """Read a map.

    Args:
        content: of the file.
        path: what it is called in messages.

    Raises:
        MapErrors: with everything that is wrong.
    """
    if len(content) > MAX_BYTES:
        raise MapErrors(path, [FileFault(0, f"longer than {MAX_BYTES >> 10} KiB")])
    try:
        lines = content.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        place = content.count(b"\n", 0, error.start) + 1
        raise MapErrors(path, [FileFault(place, "holds what is no ASCII")]) from None
    if len(lines) > MAX_LINES:
        raise MapErrors(path, [FileFault(0, f"{len(lines)} lines, at most {MAX_LINES} are read")])
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        reader.take(number, line.partition("#")[0].strip())
    if not reader.vcpus and not reader.faults:
        reader.faults.append(FileFault(0, f"holds no vCPU; {FORM}"))
    if reader.faults:
        raise MapErrors(path, reader.faults)
    return VcpuMap(reader.vcpus, reader.lines, reader.emulator)


class _Reader:
    """One reading: what is wrong is collected, and the rest read on."""

    def __init__(self) -> None:
        self.vcpus: dict[tuple[int, int], tuple[int, ...]] = {}
        self.lines: dict[tuple[int, int], int] = {}
        self.emulator: tuple[int, ...] = ()
        self.faults: list[FileFault] = []
        self._users: dict[int, int] = {}
        self._emulator_line = 0

    def take(self, number: int, line: str) -> None:
        """Take in one line, without its comment."""
        if not line:
            return
        found = _LINE.fullmatch(line)
        if not found:
            shape = "XML is not read here: " if "<" in line else ""
            self._fault(number, f"{format_value(line, 60)!r}: {shape}{FORM}")
            return
        if found["vcpu"] is None and self._emulator_line:
            self._fault(number, f"{EMULATOR} stands in line {self._emulator_line} already")
            return
        cores = self._cores(number, found["cores"].strip())
        if not cores:
            return
        if found["vcpu"] is None:
            self.emulator, self._emulator_line = cores, number
            return
        if max(len(found["guest"] or ""), len(found["vcpu"])) > len(str(HIGHEST)):
            self._fault(number, f"{format_value(line, 60)!r}: no guest or vCPU has such a number")
            return
        key = (int(found["guest"] or 0), int(found["vcpu"]))
        if key in self.vcpus:
            self._fault(number, f"vCPU {key[1]} of guest {key[0]} stands in line {self.lines[key]} already")
            return
        self.vcpus[key], self.lines[key] = cores, number

    def _fault(self, number: int, message: str) -> None:
        self.faults.append(FileFault(number, message))

    def _cores(self, number: int, text: str) -> tuple[int, ...]:
        """The cores of a list, each of which nobody has yet; (): there is something wrong with it."""
        cores: list[int] = []
        for part in text.split(","):
            found = _CORES.fullmatch(part.strip())
            first, last = (found[1], found[2] or found[1]) if found else ("", "")
            if not found or max(len(first), len(last)) > len(str(HIGHEST)) or int(last) > HIGHEST:
                self._fault(number, f"{format_value(text, 60)!r} is no list of cores from 0 to {HIGHEST}")
                return ()
            more = range(int(first), int(last) + 1)
            if not more or len(cores) + len(more) > MOST_CORES:
                self._fault(number, f"{format_value(text, 60)!r}: between 1 and {MOST_CORES} cores are due")
                return ()
            cores += more
        for core in cores:
            if core in self._users:
                place = "here" if self._users[core] == number else f"in line {self._users[core]}"
                self._fault(number, f"core {core} is given away {place} already")
                return ()
            self._users[core] = number
        return tuple(cores)


def check(found: VcpuMap, path: str, guests: int, vcpus: int) -> None:
    """Check that a map is about the guests that a node gets, all of them and no others.

    Args:
        found: the map.
        path: what it is called in messages.
        guests: of the job on each node.
        vcpus: of each guest.

    Raises:
        MapErrors: it is not.
    """
    faults = []
    for guest, vcpu in sorted(found.vcpus, key=found.lines.__getitem__):
        line = found.lines[guest, vcpu]
        if guest >= guests:
            faults.append(FileFault(line, f"there is no guest {guest}: each node has {guests}, from 0"))
        elif vcpu >= vcpus:
            faults.append(FileFault(line, f"there is no vCPU {vcpu}: each guest has {vcpus}, from 0"))
    wanted = ((guest, vcpu) for guest in range(guests) for vcpu in range(vcpus))
    missing = next((key for key in wanted if key not in found.vcpus), None)
    if missing is not None:
        faults.append(FileFault(0, f"vCPU {missing[1]} of guest {missing[0]} is missing"))
    if faults:
        raise MapErrors(path, faults)


def describe(found: VcpuMap) -> str:
    """Return what a map says, for people; cores count in the job's list on each node.

    Args:
        found: the map.
    """
    several = any(guest for guest, _vcpu in found.vcpus)
    parts = [
        f"vCPU {vcpu}{f' of guest {guest}' if several else ''} on {_format_cores(cores)}"
        for (guest, vcpu), cores in sorted(found.vcpus.items())
    ]
    others = f"other threads on {_format_cores(found.emulator)}" if found.emulator else "other threads on what is left"
    return f"{', '.join(parts)}; {others}; cores count in the job's, 0 first"
