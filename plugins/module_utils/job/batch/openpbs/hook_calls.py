# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the site's hook tells our program, how much time OpenPBS gives it, and which exit status means what.

    argv            prologue yes | prologue.other yes | epilogue yes | epilogue.other yes
    VTORQUE_CALL    {"job": "4[1].p0", "user": "alice", "run_count": "1", "exit_status": "37", "session": "206",
                     "hosts": "p1:15002/0*2+p2:15002/0*2", "node": "p1", "parent": 206}

All of it is the MOM's word, which has it from the server; "" stands for what an event does not have.
"""

from __future__ import annotations

import json
import pathlib
import re
import typing as t

from ....effects import leaves_nothing
from ....errors import SiteFault, VTorqueError
from ....wire.messages import JOB_ID, USER_NAME
from ..hook_call import HookCall, HookEnd, HookLimits, Role
from ..shared import mom_traces
from .answers import parse_exec_host
from .hook_orders import CALL

if t.TYPE_CHECKING:
    from ...config.parameters import Policy

HOOK = "vtorque"
"""The hook's name on the server, and of its files below mom_priv/hooks on each node."""
ROLES = {
    "prologue": Role.BEGIN_FIRST,
    "prologue.other": Role.BEGIN_OTHER,
    "epilogue": Role.END_FIRST,
    "epilogue.other": Role.END_OTHER,
}
REQUEUE = 75
"""The hook lets the job be queued again then (`job.rerun()` and a reject), held where an order says so."""
END_HOLDS_NODE = False
FAILED = 1
"""The hook rejects: OpenPBS queues the job again, and holds it at its 21st start."""
ALARM_S = 30
"""Seconds that OpenPBS gives a hook whose alarm nobody has set (hook.h: HOOK_ALARM_DEFAULT)."""
MARGIN_S = 10


@leaves_nothing
def read_call(arguments: t.Sequence[str], environment: t.Mapping[str, str]) -> HookCall:
    """Read what the hook hands on.

    Args:
        arguments: of the program.
        environment: of the hook's making.

    Returns:
        The call, whose job id, user and hosts are of their forms.

    Raises:
        VTorqueError: one of them is of another form.
    """
    name = arguments[0] if arguments else ""
    if name not in ROLES:
        raise VTorqueError(f"hook {name[:40]!r}", "is not one that vTorque has")
    try:
        call = json.loads(environment.get(CALL, ""))
        facts = {key: str(call[key]) for key in ("job", "user", "run_count", "exit_status", "session", "hosts")}
        parent = str(call["parent"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise VTorqueError(f"the call of hook {name}", f"is not of the form that its hook writes: {error}") from error
    if not re.fullmatch(JOB_ID, facts["job"]):
        raise VTorqueError(f"job id {facts['job'][:80]!r}", "not of the form number.server or number[index].server")
    if not re.fullmatch(USER_NAME, facts["user"]):
        raise VTorqueError(f"user {facts['user'][:80]!r}", "not of the form of a user's name")
    if not re.fullmatch(r"[0-9]{1,9}", facts["run_count"]) or not re.fullmatch(r"[0-9]{1,9}", parent):
        raise VTorqueError(f"start of job {facts['job']}", "OpenPBS does not tell which one begins or ended")
    nodes = tuple(dict.fromkeys(parse_exec_host(facts["hosts"])))
    if not nodes:
        raise SiteFault(f"job {facts['job']}", "OpenPBS does not tell on which nodes it runs")
    role = ROLES[name]
    ended = role == Role.END_FIRST
    status = facts["exit_status"] if ended and re.fullmatch(r"-?[0-9]{1,9}", facts["exit_status"]) else ""
    session = facts["session"] if ended and re.fullmatch(r"[0-9]{1,9}", facts["session"]) else "0"
    return HookCall(
        role,
        arguments[1:2] == ["yes"],
        int(parent) if role == Role.BEGIN_FIRST else 0,
        nodes[0],
        facts["job"],
        facts["user"],
        int(status) if status else None,
        int(session),
        start=int(facts["run_count"]),
        nodes=nodes,
    )


@leaves_nothing
def exit_status(end: HookEnd) -> int:
    """Return what the program exits with; an array is braked by being queued again, of which OpenPBS counts 20."""
    return {HookEnd.DONE: 0, HookEnd.AGAIN: REQUEUE}.get(end, FAILED)


def read_alarm_s(home: pathlib.Path) -> int:
    """The alarm of our hook in seconds, as the server's copy on this node has it, or OpenPBS's own default.

    Args:
        home: of OpenPBS (PBS_HOME).
    """
    file = home / "mom_priv/hooks" / f"{HOOK}.HK"
    return mom_traces.read_alarm_s(file, r"^alarm=([1-9][0-9]{0,5})$", ALARM_S)


@leaves_nothing
def hook_limits(policy: Policy) -> HookLimits:
    """Return the alarm of our hook on this node."""
    alarm_s = read_alarm_s(pathlib.Path(policy.torque_home))

    def remedy(seconds: int) -> str:
        return f"on the server's host: qmgr -c 'set hook {HOOK} alarm = {seconds + MARGIN_S}'"

    return HookLimits(f"alarm of the hook {HOOK} {alarm_s}", f"{alarm_s}s", float(alarm_s), remedy)


@leaves_nothing
def hook_ends(call: HookCall, policy: Policy, began: float) -> float:
    """Return when OpenPBS ends a hook, in seconds of the monotonic clock; see `HookAdapter.hook_ends`."""
    return began + read_alarm_s(pathlib.Path(policy.torque_home))
