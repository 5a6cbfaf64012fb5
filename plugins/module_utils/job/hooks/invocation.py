# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Torque tells a hook by its arguments, and how much time it gives."""

from __future__ import annotations

import os
import pathlib
import pwd
import re
import time
import typing as t

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...frozen import frozen
from ...system.process_id import ProcessId
from ...time_budget import ALARM_MARGIN_S, HOOK_RESERVE_S, LONGEST_START_S, TORQUE_ALARM_S
from ...wire.messages import JOB_ID, USER_NAME


@frozen
class HookCall:
    """One call of a hook.

    Attributes:
        role: `prologue`, `epilogue` or `epilogue.parallel`.
        marked: the job bears our marker; False: its resource list was too long to tell.
        parent: the process that started the hook, and that becomes the job's shell, or its parent.
        mother_superior: PBS_MSHOST.
        job_id: which job, of the form of a job id.
        user: as whom the job runs.
        exit_status: of the job, for epilogues; else None.
        session: of the job on this node, for epilogues; 0: there is none, or Torque does not say.
    """

    role: str
    marked: bool
    parent: int
    mother_superior: str
    job_id: str
    user: str
    exit_status: int | None
    session: int = 0

    @property
    def uid(self) -> int | None:
        """The user's, as this node knows him; None when it does not."""
        try:
            return pwd.getpwnam(self.user).pw_uid
        except KeyError:
            return None


@leaves_nothing
def parse_call(words: t.Sequence[str]) -> HookCall:
    """Read what the launcher hands on: role, marker, parent, PBS_MSHOST, and Torque's own arguments.

    Args:
        words: the arguments of the program.

    Returns:
        The call, whose job id and user are of their forms.

    Raises:
        VTorqueError: the job's id or the user's name is of another form than Torque's.
    """
    role, marker, parent, mother_superior, *torque = words
    job_id, user = torque[0], torque[1]
    if not re.fullmatch(JOB_ID, job_id):
        raise VTorqueError(f"job id {job_id[:80]!r}", "not of the form number.server or number[index].server")
    if not re.fullmatch(USER_NAME, user):
        raise VTorqueError(f"user {user[:80]!r}", "not of the form of a user's name")
    status = torque[9] if role.startswith("epilogue") else None
    exit_status = int(status) if status is not None and re.fullmatch(r"-?[0-9]{1,9}", status) else None
    said = torque[4] if role.startswith("epilogue") else ""
    session = int(said) if re.fullmatch(r"[0-9]{1,9}", said) else 0
    return HookCall(role, marker == "yes", int(parent), mother_superior, job_id, user, exit_status, session)


@leaves_nothing
def read_alarm_s(torque_home: pathlib.Path) -> int:
    """`$prologalarm` of the MOM's configuration in seconds, or Torque's own default.

    Args:
        torque_home: Torque's home directory.

    Returns:
        Seconds.
    """
    try:
        text = (torque_home / "mom_priv" / "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return TORQUE_ALARM_S
    found = re.findall(r"^\s*\$prologalarm\s+([0-9]{1,6})\b", text, re.MULTILINE)
    return int(found[-1]) if found else TORQUE_ALARM_S


@leaves_nothing
def hook_began() -> float:
    """When Torque started this hook (the launcher is our parent), in seconds of the monotonic clock."""
    ticks = ProcessId.of(os.getppid()).start_ticks
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)


@leaves_nothing
def deadline(
    call: HookCall, torque_home: pathlib.Path, *, began: float, at_most_s: float, reserve_s: float = HOOK_RESERVE_S
) -> float:
    """When the hook's work must be done, in seconds of the monotonic clock.

    Torque has two clocks, and both use `$prologalarm` (torque.md): one kills the script, counted from its start; one
    gives up a job that does not start, counted from its arrival at the MOM, which is when it wrote the node file.

    Args:
        began: when the hook was started, in seconds of the monotonic clock.
        at_most_s: the site's own bound, from the start of the hook.
        reserve_s: what is kept of Torque's time.
    """
    alarm_s = read_alarm_s(torque_home)
    killed = began + (alarm_s - ALARM_MARGIN_S if alarm_s > ALARM_MARGIN_S else alarm_s)
    try:
        age_s = time.time() - (torque_home / "aux" / call.job_id).stat().st_mtime
        arrived = time.monotonic() - age_s
    except OSError:
        arrived = began
    if call.role != "prologue" or not began - LONGEST_START_S < arrived < began:
        arrived = began
    return min(began + at_most_s, min(killed, arrived + alarm_s) - reserve_s)
