# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process may take: processors after all others, or no more than so much."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import typing as t

AUTOGROUP = pathlib.Path("/proc/self/autogroup")
WORDS_BYTES = 1 << 20
WORDS = ((resource.RLIMIT_FSIZE, WORDS_BYTES), (resource.RLIMIT_CORE, 0))
"""For an ssh: what it may write into its standard error (a file without a name counts as any file), before the kernel
ends it.  Sockets know no such bound.  What it would leave of itself then holds keys."""


def lower_priority(niceness: int) -> None:
    """Let others have the processors first, for work that nobody waits for.

    Where the kernel groups processes by session, niceness counts within a session alone, and the session has one of its
    own (sched(7), "The autogroup feature"): both are set.

    Args:
        niceness: 1 to 19. The session's is set only by the process that leads it: an administrator who fills a cache
            by hand does not send all of their login back.
    """
    os.nice(niceness)
    if os.getsid(0) != os.getpid():
        return
    with contextlib.suppress(OSError):  # a kernel without such groups, or one that was asked a moment ago
        AUTOGROUP.write_text(str(niceness), encoding="ascii")


def leash(pid: int, bounds: t.Iterable[tuple[int, int]]) -> None:
    """Bound what a program may take, which has just been started, and whose words are somebody else's.

    From outside, since threads of ours run: nothing may happen in a child between fork and exec.  A peer that is to be
    bounded has no word before: it is behind a connection that takes longer.

    Args:
        pid: the program's.
        bounds: kinds of `resource`, and the most of each.
    """
    with contextlib.suppress(ProcessLookupError):
        for kind, most in bounds:
            resource.prlimit(pid, kind, (most, most))
