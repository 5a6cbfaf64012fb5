# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that go on when the hook that starts them has ended."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

from .environment import ROOT_ENVIRONMENT


def start_detached(
    command: t.Sequence[str | pathlib.Path],
    *,
    environment: t.Mapping[str, str] | None = None,
    stdin: int | t.IO[bytes] = subprocess.DEVNULL,
    stdout: int | t.IO[bytes] = subprocess.DEVNULL,
    stderr: int | t.IO[bytes] = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, and do not wait: a MOM ends a hook with everything of its session.

    Args:
        command: the program and its arguments.
        environment: all that it gets; None: that of a program of root's (`ROOT_ENVIRONMENT`).
        stdin: its standard input.
        stdout: where its output goes.
        stderr: where its messages go.

    Raises:
        OSError: it cannot be called.
    """
    return subprocess.Popen(
        command,
        env=ROOT_ENVIRONMENT if environment is None else environment,
        cwd="/",
        start_new_session=True,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )
