# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that nobody waits for, and for which nobody else should have to wait."""

from __future__ import annotations

import contextlib
import os
import pathlib

AUTOGROUP = pathlib.Path("/proc/self/autogroup")


def step_back(niceness: int) -> None:
    """Let others have the processors first.

    Where the kernel groups processes by session, niceness counts within a session alone, and the session has one of its
    own (sched(7), "The autogroup feature"): both are set.

    Args:
        niceness: 1 to 19. The session's is set only by the process that leads it: an administrator who fills a cache
            by hand does not send all of his login back.
    """
    os.nice(niceness)
    if os.getsid(0) != os.getpid():
        return
    with contextlib.suppress(OSError):  # a kernel without such groups, or one that was asked a moment ago
        AUTOGROUP.write_text(str(niceness), encoding="ascii")
