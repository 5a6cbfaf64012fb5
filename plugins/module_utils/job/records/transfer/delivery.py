# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the mother superior: a job's record is handed to the front end, now or by a later sweep."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import subprocess
import time
import typing as t

from ....effects import leaves_nothing
from ....errors import VTorqueError
from ....frozen import frozen
from ....state import delivery_queue, event_log, layout
from ....system import clock
from ....system.process.environment import TOOL_ENVIRONMENT
from ....text import printable
from ....wire.node_command import program_path
from ....wire.ssh_options import root_arguments
from ...batch.host_match import same_host
from ...config.parameters import Policy
from . import transfer_format

PROGRAM = "vtorque-record"
SEND_S = 15.0
"""Seconds for the way to the front end once the record is whole."""
SWEEP_S = 60.0
SWEEP_TRIES = 50
"""What one sweep spends on records that wait: so many seconds and tries."""
NEVER = 4
"""Exit status of the other side: this record will not be taken, however often it comes."""
SSH_FAILED = 255
"""ssh's own status when it has no connection."""

TAKEN, AWAY, REFUSED, GIVEN_UP = "taken", "away", "refused", "given up"


@frozen
class Delivery:
    """What became of a record.

    Attributes:
        outcome: TAKEN; AWAY: the front end did not answer; REFUSED: it did not take it now; GIVEN_UP: it never will.
        message: for the log.
    """

    key: str
    outcome: str
    message: str

    @property
    def is_delivered(self) -> bool:
        """Return whether the front end has it."""
        return self.outcome == TAKEN


@leaves_nothing
def front_end(policy: Policy) -> str | None:
    """The host that gets a copy of every record; None: nobody, or this host."""
    host = policy.record_host
    return None if host is None or same_host(host, os.uname().nodename) else host


def record_command(host: str, policy: Policy, ssh: t.Sequence[str]) -> list[str]:
    """Return the command that takes records on the front end.

    Args:
        host: the front end.
        policy: says how it is reached.
        ssh: the program.
    """
    return [*ssh, *root_arguments(host, policy.ssh_timeout), str(program_path(PROGRAM, policy.prefix))]


def outcome_of(status: int) -> str:
    """Return what became of what was handed over: TAKEN, GIVEN_UP, AWAY or REFUSED.

    Args:
        status: with which ssh ended.
    """
    return {0: TAKEN, NEVER: GIVEN_UP, SSH_FAILED: AWAY}.get(status, REFUSED)


def send(
    job_id: str,
    start: int,
    host: str,
    policy: Policy,
    *,
    whole: t.BinaryIO | None = None,
    state_dir: pathlib.Path = layout.STATE_DIR,
    ssh: t.Sequence[str] = ("/usr/bin/ssh",),
) -> Delivery:
    """Announce a record, and hand it over when it is whole; until it is taken it is marked as waiting.

    Args:
        job_id: the job.
        start: its start.
        host: the front end.
        policy: says how it is reached.
        whole: ends when the record is whole; None: it is.
        state_dir: holds records and spool.
        ssh: the program.
    """
    key = layout.job_key(job_id, start)
    try:
        delivery_queue.mark_pending(key, state_dir)
    except VTorqueError as error:
        return Delivery(key, REFUSED, f"was not handed over: {error}")
    with delivery_queue.claimed(key, state_dir) as ours:
        if not ours:
            return Delivery(key, REFUSED, "is being handed over already")
        outcome, why = _try(job_id, start, host, policy, whole or io.BytesIO(), state_dir, ssh)
        if outcome in (TAKEN, GIVEN_UP):
            delivery_queue.done(key, state_dir)
        else:
            delivery_queue.tried(key, why, state_dir)
    reasons = {
        TAKEN: f"was handed over to {host}",
        GIVEN_UP: f"was not handed over to {host}, and that is given up: {why}; it stays on this node",
    }
    return Delivery(
        key, outcome, reasons.get(outcome) or f"was not handed over to {host}: {why}; it waits on this node"
    )


def _try(
    job_id: str, start: int, host: str, policy: Policy, whole: t.BinaryIO, state_dir: pathlib.Path, ssh: t.Sequence[str]
) -> tuple[str, str]:
    try:
        with subprocess.Popen(
            record_command(host, policy, ssh),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env=TOOL_ENVIRONMENT,
        ) as process:
            try:
                why = _talk(process, job_id, start, whole, state_dir)
            except BaseException:
                process.kill()
                raise
        return outcome_of(process.returncode), why
    except subprocess.TimeoutExpired:
        return AWAY, f"no answer within {SEND_S:.0f} s"
    except (OSError, VTorqueError) as error:
        gone = not (state_dir / "records" / layout.job_key(job_id, start) / layout.RECORD).exists()
        return GIVEN_UP if gone else REFUSED, printable(str(error))


def _talk(process: subprocess.Popen[bytes], job_id: str, start: int, whole: t.BinaryIO, state_dir: pathlib.Path) -> str:
    """What the other end complained of, when it has ended."""
    stdin = t.cast("t.IO[bytes]", process.stdin)
    with contextlib.suppress(BrokenPipeError):  # its complaint says why
        os.write(stdin.fileno(), transfer_format.format_announcement(job_id, start))
    whole.read()
    parcel = transfer_format.pack(job_id, start, state_dir / "records" / layout.job_key(job_id, start))
    _nothing, complaint = process.communicate(transfer_format.format_parcel(parcel), timeout=SEND_S)
    return printable(complaint.decode(errors="replace").strip().replace("\n", " "))[:500]


def send_waiting(
    policy: Policy,
    deadline: clock.Deadline,
    *,
    state_dir: pathlib.Path = layout.STATE_DIR,
    run_dir: pathlib.Path = layout.RUN_DIR,
    ssh: t.Sequence[str] = ("/usr/bin/ssh",),
) -> tuple[Delivery, ...]:
    """Try once more what waits and is due, the oldest first, until the front end turns out to be away.

    Args:
        policy: names the front end; where it names none, nothing waits any more.
        deadline: when to end.
        state_dir: holds records and spool.
        run_dir: holds what is true of jobs that run: a record of those is not whole.
        ssh: the program.

    Returns:
        What was tried.

    Raises:
        OSError: the spool cannot be read.
    """
    marks = delivery_queue.list_pending(state_dir)
    host = front_end(policy)
    if host is None:
        for mark in marks:
            delivery_queue.done(mark.key, state_dir)
        return ()
    now = time.time()
    until = clock.Deadline.after(deadline.left_s(SWEEP_S))
    found: list[Delivery] = []
    for mark in marks:
        if len(found) == SWEEP_TRIES or until.left_s() < SEND_S:
            break
        if not mark.is_due(now) or (run_dir / "jobs" / mark.key).exists():
            continue
        outcome = _send_again(mark.key, host, policy, state_dir, ssh)
        found += [outcome] if outcome else []
        if outcome and outcome.outcome == AWAY:
            break
    return tuple(found)


def _send_again(key: str, host: str, policy: Policy, state_dir: pathlib.Path, ssh: t.Sequence[str]) -> Delivery | None:
    start = layout.start_of(key)
    if start is None:
        return None
    with delivery_queue.claimed(key, state_dir) as ours:
        if not ours:  # the epilogue's own try is not over
            return None
    outcome = send(*start, host, policy, state_dir=state_dir, ssh=ssh)
    if outcome.outcome not in (TAKEN, GIVEN_UP):  # a line for each try would keep the record young for ever
        return outcome
    with contextlib.suppress(OSError):  # its owner may look there; a log that is gone stays gone
        path = state_dir / "records" / key / layout.LOG
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            event_log.configure(job=start[0])
            level = event_log.WARNING if outcome.outcome == GIVEN_UP else event_log.INFO
            event_log.write(fd, f"the record {outcome.message}", level, "record")
        finally:
            event_log.configure(job="")
            os.close(fd)
    return outcome
