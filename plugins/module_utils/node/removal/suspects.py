# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts that were found over once, and when: over twice, a minute apart, is what the sweep believes."""

from __future__ import annotations

import json
import pathlib
import time

from ...errors import VTorqueError
from ...system import files
from ...system.process import process_id

VERSION = 1


class Suspects:
    """The starts under suspicion, in a file that tells nothing after the boot in which it was written.

    Args:
        path: the file.  Whatever is wrong with it costs another minute, and nothing else.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        # counts while the machine sleeps, and does not jump when somebody sets the clock
        self.now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._first_s = self._read()

    def _read(self) -> dict[str, float]:
        try:
            data = files.read_json(self.path)
        except (OSError, VTorqueError, ValueError):
            return {}
        found = data.get("suspects")
        if data.get("version") != VERSION or data.get("boot_id") != process_id.boot_id() or not isinstance(found, dict):
            return {}
        return {
            key: float(first)
            for key, first in found.items()
            # a moment that is still to come was never seen
            if isinstance(first, (int, float)) and not isinstance(first, bool) and 0 <= first <= self.now_s
        }

    def suspected_s(self, key: str) -> float:
        """Seconds since this start was first found over; 0.0 when that is now."""
        return self.now_s - self._first_s.setdefault(key, self.now_s)

    def clear(self, key: str) -> None:
        """Forget a start, which lives or is gone."""
        self._first_s.pop(key, None)

    def forget_others(self, keys: set[str]) -> None:
        """Forget what is not here any more."""
        for key in set(self._first_s) - keys:
            del self._first_s[key]

    def write(self) -> None:
        """Keep them for the next look.

        Raises:
            VTorqueError: the file was not written.
        """
        if self._first_s or self.path.exists():
            data = {"version": VERSION, "boot_id": process_id.boot_id(), "suspects": self._first_s}
            files.write(self.path, json.dumps(data))
