# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Torque tells a hook by its arguments, how much time it gives, and which exit status means what."""

from __future__ import annotations

import pathlib
import re
import time
import typing as t

from ....effects import leaves_nothing
from ....errors import VTorqueError
from ....time_budget import ALARM_MARGIN_S, LONGEST_START_S, TORQUE_ALARM_S
from ....wire.messages import JOB_ID, USER_NAME
from ..hook_call import HookCall, HookEnd, HookLimits, Role
from ..shared import mom_traces

if t.TYPE_CHECKING:
    from ...config.parameters import Policy

ROLES = {
    "prologue": Role.BEGIN_FIRST,
    "prologue.parallel": Role.BEGIN_OTHER,
    "epilogue": Role.END_FIRST,
    "epilogue.parallel": Role.END_OTHER,
}
REQUEUE = 75
"""EX_TEMPFAIL, which the launcher turns into a 2: no other end of ours has it, neither an error of Python's (1, 2, 120)
nor a signal (128 and more)."""
END_HOLDS_NODE = False
FAILED = 1
"""The launcher lets a member of an array wait then, and Torque hears nothing of it."""


@leaves_nothing
def read_call(arguments: t.Sequence[str], environment: t.Mapping[str, str]) -> HookCall:
    """Read what the launcher hands on: role, marker, parent, PBS_MSHOST, and Torque's own arguments.

    Args:
        arguments: of the program.
        environment: of the launcher's making; Torque's is a user's in part, and is not read.

    Returns:
        The call, whose job id and user are of their forms.

    Raises:
        VTorqueError: the job's id or the user's name is of another form than Torque's.
    """
    name, marker, parent, mother_superior, *torque = arguments
    if name not in ROLES:
        raise VTorqueError(f"hook {name[:40]!r}", "is not one that vTorque has")
    job_id, user = torque[0], torque[1]
    if not re.fullmatch(JOB_ID, job_id):
        raise VTorqueError(f"job id {job_id[:80]!r}", "not of the form number.server or number[index].server")
    if not re.fullmatch(USER_NAME, user):
        raise VTorqueError(f"user {user[:80]!r}", "not of the form of a user's name")
    ended = name.startswith("epilogue")
    status, session = (torque[9], torque[4]) if ended else ("", "")
    exit_status = int(status) if re.fullmatch(r"-?[0-9]{1,9}", status) else None
    number = int(session) if re.fullmatch(r"[0-9]{1,9}", session) else 0
    return HookCall(ROLES[name], marker == "yes", int(parent), mother_superior, job_id, user, exit_status, number)


@leaves_nothing
def exit_status(end: HookEnd) -> int:
    """Return what the program exits with: `REQUEUE` is the one end that Torque hears of."""
    return {HookEnd.DONE: 0, HookEnd.AGAIN: REQUEUE}.get(end, FAILED)


def read_alarm_s(torque_home: pathlib.Path) -> int:
    """`$prologalarm` of the MOM's configuration in seconds, or Torque's own default.

    Args:
        torque_home: Torque's home directory.

    Returns:
        Seconds.
    """
    line = r"^\s*\$prologalarm\s+([0-9]{1,6})\b"
    return mom_traces.read_alarm_s(torque_home / "mom_priv" / "config", line, TORQUE_ALARM_S)


@leaves_nothing
def hook_limits(policy: Policy) -> HookLimits:
    """Return `$prologalarm` of this node."""
    alarm_s = read_alarm_s(pathlib.Path(policy.torque_home))
    mom_priv = pathlib.Path(policy.torque_home) / "mom_priv"

    def remedy(seconds: int) -> str:
        # pbs_mom(8): SIGHUP has it read its file again; `momctl -r` wants a file, which it sends to a MOM in its place
        least = seconds + ALARM_MARGIN_S
        return f"write $prologalarm {least} into {mom_priv}/config, then kill -HUP $(cat {mom_priv}/mom.lock)"

    return HookLimits(f"$prologalarm {alarm_s}", f"{alarm_s}s", _killed_after_s(alarm_s), remedy)


@leaves_nothing
def hook_ends(call: HookCall, policy: Policy, began: float) -> float:
    """When Torque ends a hook, in seconds of the monotonic clock.

    Torque has two clocks, and both use `$prologalarm` (torque.md): one kills the script, counted from its start; one
    gives up a job that does not start, counted from its arrival at the MOM, which is when it wrote the node file.

    Args:
        call: of the hook.
        policy: says where Torque's files are.
        began: when the hook was started, in seconds of the monotonic clock.
    """
    torque_home = pathlib.Path(policy.torque_home)
    alarm_s = read_alarm_s(torque_home)
    try:
        age_s = time.time() - (torque_home / "aux" / call.job_id).stat().st_mtime
        arrived = time.monotonic() - age_s
    except OSError:
        arrived = began
    if call.role != Role.BEGIN_FIRST or not began - LONGEST_START_S < arrived < began:
        arrived = began
    return min(began + _killed_after_s(alarm_s), arrived + alarm_s)


def _killed_after_s(alarm_s: int) -> int:
    return alarm_s - ALARM_MARGIN_S if alarm_s > ALARM_MARGIN_S else alarm_s
