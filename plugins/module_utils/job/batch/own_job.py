# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which job this process is the shell of, and what it is to run."""

from __future__ import annotations

import typing as t

from ...frozen import frozen

if t.TYPE_CHECKING:
    from ...system.process_id import ProcessId


@frozen
class OwnJob:
    """The start that a process is the shell of.

    Attributes:
        job_id: of the job.
        run_directory: the name of root's directory for this start (`layout.job_key`), a name and no path.
        process: the one by which root noted this shell, which root's record must name; None: the batch system has
            another proof that a user cannot forge (its cgroup), and the adapter has checked it.
    """

    job_id: str
    run_directory: str
    process: ProcessId | None


@frozen
class JobScript:
    """The script of a batch job.

    Attributes:
        path: where it lies on the node, and will in the guest.
        line: what the user's shell in the guest gets on its standard input.
        content: of the script.
        by_login_shell: does a login shell run it?  Else it is executed itself, and gets the job's signals.
        arguments: with which it is executed; a login shell has them in its line.
    """

    path: bytes
    line: bytes
    content: bytes
    by_login_shell: bool = True
    arguments: tuple[bytes, ...] = ()
