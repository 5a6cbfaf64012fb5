# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's commands: by absolute path, each with a deadline and an environment of our own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import typing as t

from ....errors import SiteFault
from ....system.environment import TOOL_ENVIRONMENT
from ....text import printable
from ..api import UnknownJob

if t.TYPE_CHECKING:
    from ....system.clock import Deadline

UNKNOWN_JOB = "Invalid job id specified"
GONE = re.compile(r"Unable to contact|timed out|connect failure|Connection refused", re.IGNORECASE)


class Refused(SiteFault):
    """The controller answered, and did not do it."""


def run(
    tools: pathlib.Path, command: t.Sequence[str], subject: str, *, timeout_s: float, deadline: Deadline | None
) -> bytes:
    """Run one of Slurm's commands; all its failures have the same status, and are told apart by their words.

    Args:
        tools: the directory of the commands.
        command: its name and arguments.
        subject: the job or node that it is about, for messages.
        timeout_s: seconds that it may take.
        deadline: when all commands must be done, if there is such a moment.

    Returns:
        What it wrote.

    Raises:
        UnknownJob: the controller does not know the job.
        Refused: it answered, and did not do it.
        SiteFault: it did not answer.
    """
    tool = command[0]
    if deadline is not None:
        timeout_s = deadline.left_s(timeout_s)
    if timeout_s <= 0:
        raise SiteFault(tool, "no time is left to ask Slurm's controller")
    try:
        # a group of its own: whatever a site's wrapper started ends with it
        process = subprocess.Popen(
            [str(tools / tool), *command[1:]],
            env=TOOL_ENVIRONMENT,
            cwd="/",
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise SiteFault(str(tools / tool), f"cannot be run: {error.strerror}", "see pbs_qsub_on_nodes") from error
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise SiteFault(tool, f"Slurm's controller did not answer within {timeout_s:.3g} s") from error
            raise
    if process.returncode == 0:
        return out
    raise _failure(tool, subject, process.returncode, err.decode(errors="replace"))


def _failure(tool: str, subject: str, status: int, text: str) -> SiteFault:
    if UNKNOWN_JOB in text:
        return UnknownJob(f"job {subject}", "Slurm's controller does not know it")
    first = printable(next((line.strip() for line in text.splitlines() if line.strip()), ""))[:200]
    if GONE.search(text):
        return SiteFault(tool, "Slurm's controller cannot be reached", first)
    return Refused(f"{tool} {subject}".strip(), f"status {status}: {first or 'no text'}")
