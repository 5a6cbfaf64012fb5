# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Energy of this node, by the processors' own counters (RAPL, Linux' powercap; root alone may read them since 5.10).

/sys/class/powercap/intel-rapl:<package>               a processor with all that is in it (also of AMD's)
/sys/class/powercap/intel-rapl:<package>:<n>           a part of it: `dram` lies outside, all others inside
"""

from __future__ import annotations

import contextlib
import pathlib
import re

POWERCAP = pathlib.Path("/sys/class/powercap")
STAT = pathlib.Path("/proc/stat")
_ZONE = re.compile(r"intel-rapl:[0-9]{1,4}(:[0-9]{1,4})?")
_IDLE = (3, 4)
"""Columns of /proc/stat in which a processor does nothing: idle, iowait."""


class _Zone:
    """A counter, and where it stood last."""

    def __init__(self, counter: pathlib.Path, range_uj: int, last_uj: int) -> None:
        self.counter, self.range_uj, self.last_uj = counter, range_uj, last_uj


class EnergyMeter:
    """Counts what this node uses from now on, and which part of it some guests' processor time stands for.

    The counters wrap around: of a processor at 200 W after some 20 minutes; `read` must be called more often.

    Args:
        powercap: where the kernel shows the counters.
        stat: where it shows the processor time of the whole node.

    Attributes:
        node_j: joules of the node while the guests did not stand still; None: it has no such counters.
        share_j: of these the guests' part, by their share of the node's processor time.
    """

    def __init__(self, powercap: pathlib.Path = POWERCAP, stat: pathlib.Path = STAT) -> None:
        self._stat = stat
        self._zones = [zone for path in _zones(powercap) if (zone := _open(path))]
        self._busy_s, self._cpu_s = _busy_ticks(stat), 0.0
        self.node_j: float | None = 0.0 if self._zones else None
        self.share_j: float | None = self.node_j

    def read(self, guests_cpu_s: float, ticks_s: float, *, suspended: bool = False) -> None:
        """Read the counters.

        Args:
            guests_cpu_s: processor time of the guests so far, in seconds; it never becomes less.
            ticks_s: how many of the kernel's ticks a second has.
            suspended: the guests have stood still since it was read last, and others may have had the node.
        """
        if self.node_j is None or self.share_j is None:
            return
        new_j = sum(map(_advance, self._zones)) / 1e6
        busy = _busy_ticks(self._stat)
        node_s, own_s = (busy - self._busy_s) / ticks_s, max(0.0, guests_cpu_s - self._cpu_s)
        self._busy_s, self._cpu_s = busy, max(guests_cpu_s, self._cpu_s)
        self.node_j += 0.0 if suspended else new_j
        self.share_j += new_j * min(1.0, own_s / node_s) if node_s > 0 else 0.0


def _zones(powercap: pathlib.Path) -> list[pathlib.Path]:
    with contextlib.suppress(OSError):
        return sorted(path for path in powercap.iterdir() if _ZONE.fullmatch(path.name))
    return []


def _open(zone: pathlib.Path) -> _Zone | None:
    """A zone that counts: a whole processor, or memory beside it."""
    try:
        name = (zone / "name").read_text(encoding="ascii").strip()
        if not (name.startswith("package") or name == "dram"):
            return None
        counter = zone / "energy_uj"
        limit = int((zone / "max_energy_range_uj").read_text(encoding="ascii"))
        return _Zone(counter, limit, int(counter.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return None


def _advance(zone: _Zone) -> int:
    """Return how far a counter has gone since it was read last, in microjoules."""
    try:
        now = int(zone.counter.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    new = now - zone.last_uj
    zone.last_uj = now
    return new if new >= 0 else new + zone.range_uj


def _busy_ticks(stat: pathlib.Path) -> int:
    """Return the ticks in which this node's processors did something; a guest's are in `user` already."""
    try:
        fields = stat.read_text(encoding="ascii").partition("\n")[0].split()[1:9]
        return sum(int(field) for number, field in enumerate(fields) if number not in _IDLE)
    except (OSError, ValueError):
        return 0
