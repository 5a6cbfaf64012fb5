# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of signals, as `qsig` takes them."""

from __future__ import annotations

import signal


def signal_number(name: str) -> int | None:
    """The number of `USR1`, `SIGUSR1` or `10`."""
    if name.isdigit():
        return int(name) if int(name) < signal.NSIG else None
    full = name if name.startswith("SIG") else f"SIG{name}"
    return int(signal.Signals[full]) if full in signal.Signals.__members__ else None
