# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bounds for a program whose words are somebody else's."""

from __future__ import annotations

import contextlib
import resource
import typing as t

WORDS_BYTES = 1 << 20
WORDS = ((resource.RLIMIT_FSIZE, WORDS_BYTES), (resource.RLIMIT_CORE, 0))
"""For an ssh: what it may write into its standard error (a file without a name counts as any file), before the kernel
ends it.  Sockets know no such bound.  What it would leave of itself then holds keys."""


def leash(pid: int, bounds: t.Iterable[tuple[int, int]]) -> None:
    """Bound what a program may take, which has just been started.

    From outside, since threads of ours run: nothing may happen in a child between fork and exec.  A peer that is to be
    bounded has no word before: it is behind a connection that takes longer.

    Args:
        pid: the program's.
        bounds: kinds of `resource`, and the most of each.
    """
    with contextlib.suppress(ProcessLookupError):
        for kind, most in bounds:
            resource.prlimit(pid, kind, (most, most))
