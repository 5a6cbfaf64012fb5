# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vm_prologue` and `vm_epilogue`: scripts of the user's own in the guest of rank 0, started by root's hooks.

Root neither opens the user's file nor speaks with the guest: a child that has become the user does both
(`cli/user_script.py`), and what it says is the user's word about the user's script.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pwd
import time
import typing as t

from ...effects import leaves_nothing
from ...errors import UserFault, VTorqueError, error_from_dict
from ...frozen import frozen
from ...state import layout
from ...system import clock, files
from ...system.process import supervised
from ...system.process.environment import TOOL_ENVIRONMENT
from ...text import printable
from ...time_budget import USER_SCRIPT_LEAST_S
from ..batch.api import BatchJob
from ..batch.registry import open_hooks, open_shell
from ..batch.shared import owner_process
from ..batch.shared.commands_directory import commands_directory
from ..batch.vm_job import vm_job_of
from ..config.parameters import Policy
from ..plan.owner import owner_of
from . import playbook
from .start import Start

PROLOGUE, EPILOGUE = "vm_prologue", "vm_epilogue"
WORD_LIMIT = 1 << 14
"""Bytes of what the child says about the end; less than a pipe holds, so that it never waits for us."""
TAIL = 400
"""Characters of a script's last output that a message repeats."""


@frozen
class UserScript:
    """A script that a job's request names.

    Attributes:
        key: `vm_prologue` or `vm_epilogue`.
        path: absolute; for the user's own process to open.
        digest: SHA-256 of what must be there.
    """

    key: str
    path: str
    digest: str


@frozen
class ScriptEnd:
    """How a script ended.

    Attributes:
        end: `status 0`, `status 3`, `signal 9`, `not run`, `not done in time`.
        seconds: that it took, with the way there and back.
        fault: what is wrong; None: it ended with status 0.
    """

    end: str
    seconds: float
    fault: VTorqueError | None


@leaves_nothing
def requested_script(job: BatchJob | None, key: str) -> UserScript | None:
    """The script that a job's request names under this key, if any.

    Args:
        job: the batch server's word.
        key: `PROLOGUE` or `EPILOGUE`.

    Returns:
        The script; None also for a request that cannot be read, with which no guest is planned.
    """
    try:
        vm_job = vm_job_of(job) if job is not None else None
    except UserFault:
        return None
    if vm_job is None or key not in vm_job.request.values:
        return None
    return UserScript(key, str(vm_job.request.values[key]), vm_job.request.digests[key])


def run(
    script: UserScript, job: BatchJob, start: Start, policy: Policy, *, timeout_s: float, log: t.IO[bytes]
) -> ScriptEnd:
    """Run a script in the guest of rank 0; its output is this hook's, which the batch system gave to the job.

    Args:
        script: which.
        job: the batch server's word.
        start: whose guests are ready.
        policy: the site's.
        timeout_s: seconds for all of it.
        log: the job's.

    Returns:
        How it ended, which is also noted in the log and kept for the job's record.
    """
    began = time.monotonic()
    try:
        if timeout_s < USER_SCRIPT_LEAST_S:
            limit = open_hooks(policy.batch_system).hook_limits(policy).setting
            raise VTorqueError("no time is left for it", f"prologue_timeout, or {limit}, is too short")
        playbook.note(log, f"{script.key} {printable(script.path)}: begins, for {timeout_s:.0f} s at most")
        code, word = _run_script(script, job, start, policy, timeout_s)
        reason, fault = _judge(script, code, word, timeout_s)
    except (VTorqueError, OSError) as error:
        reason, fault = "not run", VTorqueError(f"{script.key} {printable(script.path)} was not run", str(error))
    ended = ScriptEnd(reason, round(time.monotonic() - began, 3), fault)
    playbook.note(log, f"{script.key}: {fault or ended.end}")
    at = round(clock.since_epoch(began), 3)
    data = {"path": script.path, "ended": ended.end, "began": at, "seconds": ended.seconds}
    with contextlib.suppress(VTorqueError):
        files.write(start.directory / f"{script.key}.json", json.dumps(data))
    return ended


def _run_script(
    script: UserScript, job: BatchJob, start: Start, policy: Policy, timeout_s: float
) -> tuple[int | None, dict[str, t.Any]]:
    system = open_shell(policy.batch_system)
    order = {
        **dataclasses.asdict(script),
        "job_id": start.job_id,
        "directory": str(start.directory),
        "script": system.script_path(policy, f"{layout.job_key(start.job_id, start.number)}.{script.key}"),
        "variables": system.variables_of_root(job, policy),
        "listed": job.variables,
        "batch_system": policy.batch_system,
        "tools": str(commands_directory(policy)),
    }
    reading, writing = os.pipe2(os.O_CLOEXEC)
    streams = [os.dup(fd) for fd in (1, 2)]
    with os.fdopen(reading, "rb", buffering=0) as heard:
        try:
            process = supervised.begin(
                [*_become(job), *start.places.user_script, *map(str, (*streams, writing))],
                _environment(job),
                inherited=(*streams, writing),
            )
        finally:
            for fd in (*streams, writing):
                os.close(fd)
        code = supervised.finish(process, timeout_s=timeout_s, stdin=json.dumps(order).encode())
        os.set_blocking(heard.fileno(), False)
        word = heard.read(WORD_LIMIT)
    try:
        data = json.loads(word or b"{}")
    except (ValueError, RecursionError):
        data = {}
    return code, data if isinstance(data, dict) else {}


def _become(job: BatchJob) -> list[str]:
    """The call that becomes the job's user, with their groups, and with the job's own group first."""
    owner = owner_of(job.euser, job.egroup)
    return list(owner_process.become(owner.uid, owner.gid, (group.gid for group in owner.groups)))


def _environment(job: BatchJob) -> dict[str, str]:
    # a user's script may call programs of /usr/sbin by name, such as ip(8)
    return {**TOOL_ENVIRONMENT, "HOME": pwd.getpwnam(job.euser).pw_dir, "USER": job.euser, "LOGNAME": job.euser}


def _judge(
    script: UserScript, code: int | None, word: t.Mapping[str, t.Any], timeout_s: float
) -> tuple[str, VTorqueError | None]:
    """What the child's word means; it is the user's, so that it can only speak against their own job."""
    what = f"{script.key} {printable(script.path)}"
    if code is None:
        return "not done in time", UserFault(what, f"was not done in {timeout_s:.0f} s", _last(word))
    if isinstance(word.get("error"), dict):
        error = error_from_dict(word["error"])
        kind = VTorqueError if word.get("lost") is True else UserFault
        return "not run", kind(what, f"{error.what}: {error.why}".removesuffix(": "), error.hint)
    kind_of_end, number = word.get("kind"), word.get("number")
    if code != 0 or kind_of_end not in ("exit", "signal") or not isinstance(number, int):
        return "not run", UserFault(what, "was not run: the program that runs it as you ended early")
    if kind_of_end == "signal":
        return f"signal {number}", UserFault(what, f"was killed by signal {number}", _last(word))
    if number != 0:
        return f"status {number}", UserFault(what, f"ended with status {number}", _last(word))
    return "status 0", None


def _last(word: t.Mapping[str, t.Any]) -> str:
    tail = printable(" | ".join(str(word.get("tail", "")).split("\n")[-5:]).strip(" |"))[-TAIL:]
    return f"its last lines: {tail}" if tail else "it printed nothing"
