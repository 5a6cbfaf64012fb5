# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of the daemons, one file a day, in the shape of Torque's."""

from __future__ import annotations

import pathlib
import time


class Log:
    """Writes `date;daemon;class;object;text` lines.

    Args:
        directory: server_logs or mom_logs of the daemon's home.
        daemon: PBS_Server or pbs_mom.
    """

    def __init__(self, directory: pathlib.Path, daemon: str) -> None:
        self._directory = directory
        self._daemon = daemon
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, kind: str, what: str, text: str) -> None:
        """Add a line."""
        now = time.time()
        local = time.localtime(now)
        stamp = time.strftime("%m/%d/%Y %H:%M:%S", local) + f".{int(now * 1000) % 1000:03d}"
        with (self._directory / time.strftime("%Y%m%d", local)).open("a", errors="surrogateescape") as file:
            file.write(f"{stamp};{self._daemon};{kind};{what};{text}\n")

    def account(self, directory: pathlib.Path, kind: str, what: str, text: str) -> None:
        """Add a line to the accounts of the day: `S` for a start, `E` for an end (Torque 6, accounting.c)."""
        local = time.localtime()
        directory.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%m/%d/%Y %H:%M:%S", local)
        with (directory / time.strftime("%Y%m%d", local)).open("a", errors="surrogateescape") as file:
            file.write(f"{stamp};{kind};{what};{text}\n")

    def mail(self, directory: pathlib.Path, user: str, text: str) -> None:
        """What Torque would have mailed to a user."""
        directory.mkdir(exist_ok=True)
        with (directory / user).open("a") as file:
            file.write(text + "\n")
