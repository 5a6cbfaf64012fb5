# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of errors in files of the kernel: what they are, and by how much they have grown in 24 hours.

Such are `/sys/devices/system/edac/mc/mc*/ce_count` and `ue_count` (Documentation/ABI/testing/sysfs-devices-edac) and
`/sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_count`; of several numbers, a line each with the word
before it, `/sys/bus/pci/devices/*/aer_dev_fatal` (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).
"""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import stat
import typing as t

from ...errors import SiteFault
from ...site_lists.health_sources import HealthSource

FILES = 256
"""Files of one source that are read."""
LONGEST = 4096
HOUR_S = 3600.0
HOURS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class Counter:
    """One counter, as it was read at times.

    Attributes:
        last: its number when it was read last.
        growth: by how much it has grown in an hour of the clock (since the epoch), where it has.
    """

    last: int
    growth: dict[int, int]

    def read(self, number: int, now: float) -> Counter:
        """Return the counter with one more reading; a number that is smaller than before was set back to 0 meanwhile.

        Args:
            number: that was read.
            now: when, in seconds since the epoch.
        """
        hour = int(now // HOUR_S)
        growth = {at: count for at, count in self.growth.items() if hour - HOURS < at <= hour}
        if grown := number - self.last if number >= self.last else number:
            growth[hour] = growth.get(hour, 0) + grown
        return Counter(number, growth)

    @property
    def in_a_day(self) -> int:
        """By how much it has grown in the last 24 hours."""
        return sum(self.growth.values())


def read_numbers(source: HealthSource) -> dict[str, int]:
    """Return the number of each file of a source, by its path.

    Args:
        source: of the kind `counter`.

    Raises:
        SiteFault: there is no such file, or one has no number.
    """
    paths = sorted(glob.glob(source.path))[:FILES]  # noqa: PTH207 - an absolute pattern
    if not paths:
        raise SiteFault(source.path, "there is no such file")
    return {path: _read_number(path, source.field) for path in paths}


def _read_number(path: str, field: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise SiteFault(path, "is no regular file")
            text = os.read(fd, LONGEST).decode("ascii", "replace")
        finally:
            os.close(fd)
    except OSError as error:
        raise SiteFault(path, error.strerror or str(error)) from error
    form = rf"^{re.escape(field)}[ \t:=]+([0-9]{{1,20}})[ \t]*$" if field else r"\A\s*([0-9]{1,20})\s*\Z"
    found = re.search(form, text, re.MULTILINE | re.ASCII)
    if not found:
        raise SiteFault(path, f"has no number{f' after {field}' if field else ''}: {text[:40]!r}")
    return int(found[1])


def read_counters(data: t.Any) -> dict[str, Counter]:
    """Return counters as `write_counters` wrote them; what is of another form is left out.

    Args:
        data: of a file.
    """
    found: dict[str, Counter] = {}
    for path, one in data.items() if isinstance(data, dict) else ():
        try:
            growth = {int(hour): int(count) for hour, count in one["growth"].items()}
            found[str(path)] = Counter(int(one["last"]), growth)
        except (AttributeError, LookupError, TypeError, ValueError):
            continue
    return found


def write_counters(counters: t.Mapping[str, Counter]) -> dict[str, t.Any]:
    """Return counters as a file of JSON has them."""
    return {path: {"last": one.last, "growth": one.growth} for path, one in counters.items()}
