# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one of a batch system's commands: by absolute path, with a deadline and an environment of our own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import typing as t

from ....errors import SiteFault
from ....system.process.environment import TOOL_ENVIRONMENT

if t.TYPE_CHECKING:
    from ....system.clock import Deadline


class CommandRefused(SiteFault):
    """The server answered, and did not do it."""


class ServerSilent(SiteFault):
    """The server did not answer: it is busy, restarted, or gone."""


class Answer(t.NamedTuple):
    """What a command left.

    Attributes:
        status: its exit status.
        out: its standard output.
        err: its standard error.
    """

    status: int
    out: bytes
    err: str


def run_command(
    tools: pathlib.Path,
    command: t.Sequence[str],
    *,
    server: str,
    timeout_s: float,
    deadline: Deadline | None = None,
    parameter: str = "pbs_qsub_on_nodes",
) -> Answer:
    """Run a command to its end.

    Args:
        tools: the directory of the commands.
        command: its name and arguments.
        server: what it asks, for messages.
        timeout_s: seconds that it may take.
        deadline: when all commands must be done, if there is such a moment.
        parameter: that says where it is, for who has to mend that.

    Returns:
        What it left; a status other than 0 is for the caller to read.

    Raises:
        ServerSilent: it did not answer in time.
        SiteFault: it cannot be run.
    """
    tool = command[0]
    if deadline is not None:
        timeout_s = deadline.left_s(timeout_s)
    if timeout_s <= 0:
        raise SiteFault(tool, f"no time is left to ask {server}")
    try:
        # a group of its own, so that whatever a site's wrapper started dies with it, but not a session of its own:
        # a late hook is killed by session, and this must go too
        process = subprocess.Popen(
            [str(tools / tool), *command[1:]],
            env=TOOL_ENVIRONMENT,  # the commands find their server in files of their own
            cwd="/",
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise SiteFault(str(tools / tool), f"cannot be run: {error.strerror}", f"see {parameter}") from error
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise ServerSilent(tool, f"{server} did not answer within {timeout_s:.3g} s") from error
            raise
    return Answer(process.returncode, out, err.decode(errors="replace"))


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank, without the blanks around it, of at most 200 characters."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:200]
