# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The link by which a job's shell finds what root left for this very start, without asking the server.

    /run/vtorque/shells/<pid>.<ticks>     to the start's directory, named by the process that becomes the job's shell
    /run/vtorque/shells/0.<number>        the same, named by the job, where the batch system starts its shell otherwise

The process that runs `prologue` is the one that becomes the job shell (batch), or both have the same parent
(interactive).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil

from ..effects import leaves_nothing
from ..errors import VTorqueError
from ..system.files import make_directory
from ..system.process.process_id import ProcessId
from . import login_fifos
from .layout import RUN_DIR


@leaves_nothing
def of_job(job_id: str) -> ProcessId:
    """What stands for the shell of a job that no process of now becomes: process 0, which nobody is, and its number.

    Args:
        job_id: of the form of a job id.
    """
    return ProcessId(0, int(job_id.partition(".")[0].partition("[")[0]))


@leaves_nothing
def link_of(shell: ProcessId, run_dir: pathlib.Path = RUN_DIR) -> pathlib.Path:
    """Where the process that becomes the job's shell looks for what root left for it."""
    return run_dir / "shells" / str(shell)


def point(shell: ProcessId, directory: pathlib.Path, run_dir: pathlib.Path = RUN_DIR) -> None:
    """Let the job's shell find the directory of its start; a former link is replaced in one step.

    Args:
        shell: the process that becomes the job's shell.
        directory: of its start.
        run_dir: root's directory of what is true while jobs run.

    Raises:
        VTorqueError: the link was not made.
    """
    link = link_of(shell, run_dir)
    make_directory(link.parent)
    new = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        new.symlink_to(directory)
        new.rename(link)
    except OSError as error:
        raise VTorqueError(f"{link} was not made", str(error)) from error


@leaves_nothing
def links_to(directory: pathlib.Path, run_dir: pathlib.Path = RUN_DIR) -> tuple[pathlib.Path, ...]:
    """Every link through which a shell finds this directory.

    Args:
        directory: of a start.
        run_dir: root's directory of what is true while jobs run.

    Returns:
        Paths of the links.
    """
    shells = run_dir / "shells"
    found = []
    for link in shells.iterdir() if shells.is_dir() else ():
        # another job may end while we look
        with contextlib.suppress(FileNotFoundError):
            if link.is_symlink() and link.readlink().name == directory.name:
                found.append(link)
    return tuple(found)


def remove_run(directory: pathlib.Path, run_dir: pathlib.Path = RUN_DIR) -> tuple[str, ...]:
    """Take away what the job's shell could believe or use: first the links, then its ssh, keys and records.

    Args:
        directory: of a start.
        run_dir: root's directory of what is true while jobs run.

    Returns:
        What was removed, as words.

    Raises:
        VTorqueError: something would not go.
    """
    removed = []
    try:
        for link in links_to(directory, run_dir):
            link.unlink(missing_ok=True)
            removed.append(f"shell link {link.name}")
        if login_fifos.end(directory):
            removed.append("ssh of the job's shell")
        if directory.is_dir():
            shutil.rmtree(directory)
            removed.append(f"run directory {directory.name}")
    except OSError as error:
        raise VTorqueError(f"{directory} was not removed", str(error)) from error
    return tuple(removed)
