# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's commands: by absolute path, each with a deadline and an environment of our own."""

from __future__ import annotations

import pathlib
import re
import typing as t

from ....errors import SiteFault
from ....text import printable
from ...config.batch_systems import BATCH_SYSTEMS
from ..api import UnknownJob
from ..shared.server_command import CommandRefused, ServerSilent, first_line, run_command

if t.TYPE_CHECKING:
    from ....system.clock import Deadline

UNKNOWN_JOB = "Invalid job id specified"
GONE = re.compile(r"Unable to contact|timed out|connect failure|Connection refused", re.IGNORECASE)
NO_JSON = "unrecognized option '--json'"
"""Of scontrol 22.05.8."""
NO_PLUGIN = re.compile(r"unable to find plugin: (serializer|data_parser)/([\w.+-]{1,80})", re.IGNORECASE)
"""Seen on 22.05.8 and 24.11.5 without serializer_json.so (the latter's commands end by SIGSEGV), and on 24.11.5 where
slurm.conf names a data parser that is not there."""

SERVER = "Slurm's controller"
PARAMETER = BATCH_SYSTEMS["slurm"].commands_parameter


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
        CommandRefused: it answered, and did not do it.
        SiteFault: it did not answer.
    """
    answer = run_command(tools, command, server=SERVER, timeout_s=timeout_s, deadline=deadline, parameter=PARAMETER)
    if answer.status == 0:
        return answer.out
    if UNKNOWN_JOB in answer.err:
        raise UnknownJob(f"job {subject}", f"{SERVER} does not know it")
    first = printable(first_line(answer.err))
    if "--json" in command and (found := NO_PLUGIN.search(answer.err)):
        raise _missing_plugin(command[0], found)
    if GONE.search(answer.err):
        raise ServerSilent(command[0], f"{SERVER} cannot be reached", first)
    raise CommandRefused(f"{command[0]} {subject}".strip(), f"status {answer.status}: {first or 'no text'}")


def _missing_plugin(tool: str, found: re.Match[str]) -> SiteFault:
    if found[1] == "data_parser":
        remedy = "DataParserParameters of slurm.conf names it: name one of `squeue --json=list`, or remove that line"
        return SiteFault(f"{tool} --json", f"Slurm has no plugin data_parser/{found[2]} on this host", remedy)
    remedy = "install it; Debian has it in slurm-wlm-basic-plugins"
    return SiteFault(f"{tool} --json", "Slurm has no plugin serializer/json on this host", remedy)


VERSION = ("scontrol", "--version")
SETTINGS = ("scontrol", "show", "config")


def read_settings(answer: bytes) -> dict[str, str]:
    """Return the controller's settings, by the names of slurm.conf, from its answer to `SETTINGS`."""
    return dict(re.findall(r"^(\S+)\s+= (.*?)\s*$", answer.decode(errors="replace"), re.MULTILINE))
