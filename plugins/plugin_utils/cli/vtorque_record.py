# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque-record`: the copy of a job's record that the front end keeps, for those who cannot log in to nodes.

    vtorque-record                     on the front end: takes a record on standard input, from the job's first node
    vtorque-record --send JOB START    on that node: announces the record to the site's `record_host`, and hands it over
                                       when its standard input ends

What comes over the connection is checked against the batch server's word: whose job it is, which start it is at, and
that the peer is the job's mother superior.  Of a job that it has forgotten, its accounting files are its word.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pwd
import signal
import sys
import syslog
import typing as t

from ...module_utils.errors import SiteFault, UserFault, VTorqueError
from ...module_utils.job.batch.api import BatchJob, PastJob, UnknownJob
from ...module_utils.job.batch.registry import find_past_job, open_batch
from ...module_utils.job.config import consistency, parameters, policy_file
from ...module_utils.job.records import retention
from ...module_utils.job.records.transfer import archive, delivery, running, transfer_format
from ...module_utils.job.records.transfer.archive import RecordRejected
from ...module_utils.state import event_log, layout
from ...module_utils.system.process import process_limits
from ...module_utils.text import printable
from ..node_agent.authorize import check_host
from .output import messages

PROGRAM = delivery.PROGRAM
SEND = "--send"
CALL_S = 5.0
RECEIVE_S = 1800
"""Seconds from a record's announcement to its end, which is an epilogue's: after them the kernel ends us."""
NICE = 10
"""The epilogue has more to do."""


def main() -> int:
    """The program; returns its exit status."""
    os.umask(0o022)
    argv = sys.argv[1:]
    if len(argv) == 3 and argv[0] == SEND and argv[2].isdecimal():
        process_limits.lower_priority(NICE)
        return send(argv[1], int(argv[2]), sys.stdin.buffer)
    if argv:
        why = f"takes nothing, or {SEND} JOB START"
        error = UserFault(f"{PROGRAM} {printable(' '.join(argv))[:100]}", why)
        return messages.run(PROGRAM, lambda: _raise(error))
    signal.alarm(RECEIVE_S)
    return messages.run(PROGRAM, lambda: answer(sys.stdin.buffer, os.environ))


def _raise(error: VTorqueError) -> t.NoReturn:
    raise error


def answer(stream: t.BinaryIO, environment: t.Mapping[str, str]) -> int:
    """`receive`, with a status of its own for what will never be taken.

    Args:
        stream: see there.
        environment: see there.
    """
    try:
        return receive(stream, environment)
    except RecordRejected as error:
        print(messages.text(PROGRAM, error), file=sys.stderr)
        return delivery.NEVER


def receive(
    stream: t.BinaryIO,
    environment: t.Mapping[str, str],
    *,
    load: t.Callable[[], parameters.Policy] = policy_file.load,
    state_dir: pathlib.Path = layout.STATE_DIR,
    run_dir: pathlib.Path = layout.RUN_DIR,
) -> int:
    """Take a record.

    Args:
        stream: what is handed over, to its end.
        environment: holds SSH_CONNECTION.
        load: gives the site's policy.
        state_dir: holds the records.
        run_dir: holds what is true of jobs that run.

    Returns:
        0: it is kept, or was kept before.

    Raises:
        RecordRejected: another record of this start is kept, the batch server has forgotten the job, or it ran as
            another user than the one who submitted it.
        VTorqueError: it is not of the form, not from the job's first node, or was not written.
        SiteFault: the batch server does not answer, or the job's user is not known here.
    """
    connection = environment.get("SSH_CONNECTION", "")
    if not connection:
        raise VTorqueError("a record is taken over ssh alone", "nobody is at the other end of this")
    announcement = transfer_format.read_announcement(stream)
    policy, broken = policy_file.load_usable(load)
    user, is_submitter = proved_user(announcement, connection, policy)
    try:
        owner = pwd.getpwnam(user).pw_uid
    except KeyError:
        raise SiteFault(
            f"user {printable(user)[:40]!r} of job {announcement.job_id}", "is not known on this host"
        ) from None
    parcel = transfer_format.read(stream, announcement)
    if is_submitter:
        _check_submitter(parcel, user)
    if announcement.running:
        running.check_samples(parcel.files.get(layout.SAMPLES, b""))
        running.put(parcel, owner, state_dir)
        return 0
    archive.add(parcel, owner, state_dir)
    running.forget(announcement.job_id, announcement.start, state_dir)
    if broken is not None:  # how long records are kept is not known
        return 0
    for trouble in retention.retire(policy.record_days, state_dir=state_dir, run_dir=run_dir).failed:
        print(f"{PROGRAM}: {trouble}", file=sys.stderr)
    return 0


def proved_user(
    announcement: transfer_format.Announcement, connection: str, policy: parameters.Policy
) -> tuple[str, bool]:
    """Whose record it is, by the batch server's word, which must also name the peer as the mother superior.

    OpenPBS shows to managers alone as whom a job runs: then it is who submitted it, which the second value says.

    A job that is complete is known with its nodes for a while.  After that, and of a start before the one that it is
    at now, what the server wrote down speaks, where this host has them: for as long as
    the record may wait on its node.

    Raises:
        RecordRejected: the server has forgotten the job, and nothing is written down of it here.
        VTorqueError: the server's word is another.
        SiteFault: what is written down is not there just now, or not clear.
    """
    days = retention.UNDELIVERED * policy.record_days
    job: BatchJob | PastJob
    try:
        job = open_batch(policy, front_end=True, timeout_s=CALL_S).job(announcement.job_id)
        if 0 < announcement.start < job.start_count:  # who led that one may lead nothing of the job any more
            with contextlib.suppress(UnknownJob):
                job = find_past_job(policy, announcement.job_id, announcement.start, days=days)
    except UnknownJob:
        try:
            job = find_past_job(policy, announcement.job_id, announcement.start, days=days)
        except UnknownJob as error:
            raise RecordRejected(error.what, error.why, "the record stays on its node") from error
    if not job.nodes:
        raise VTorqueError(f"job {job.job_id}", "has no nodes, so nobody may hand its record over")
    check_host(job.job_id, job.nodes[0], connection, "its mother superior")
    if job.job_id != announcement.job_id or announcement.start > job.start_count:
        raise VTorqueError(
            f"start {announcement.start} of job {announcement.job_id}",
            f"the server is at start {job.start_count} of {job.job_id}",
        )
    return (job.euser, False) if job.euser or isinstance(job, PastJob) else (job.owner_user, True)


def _check_submitter(parcel: transfer_format.Parcel, submitter: str) -> None:
    """Let nobody have the record of a job that ran as somebody else, by the word of the node that ran it."""
    named = json.loads(parcel.files[layout.RECORD]).get("user", "")
    if named != submitter:
        what = f"the record of start {parcel.start} of job {parcel.job_id}"
        raise RecordRejected(
            what, f"is {printable(named)[:40] or 'nobody'}'s, and {printable(submitter)[:40]} submitted it"
        )


def send(
    job_id: str,
    start: int,
    whole: t.BinaryIO,
    *,
    load: t.Callable[[], parameters.Policy] = policy_file.load,
    state_dir: pathlib.Path = layout.STATE_DIR,
    ssh: t.Sequence[str] = ("/usr/bin/ssh",),
) -> int:
    """Announce a record, hand it over when it is whole, and say on standard error, the job's log, what came of it.

    What is given up goes to the system log too.

    Args:
        job_id: the job.
        start: its start.
        whole: ends when the record is whole.
        load: gives the site's policy.
        state_dir: holds the records.
        ssh: the program.

    Returns:
        0: it was handed over; 1: it was not.
    """
    policy, _broken = policy_file.load_usable(load)
    event_log.configure(consistency.log_settings_of(policy), program=PROGRAM, component="record", job=job_id)
    host = delivery.front_end(policy)
    if host is None:
        return 0
    try:
        outcome = delivery.send(job_id, start, host, policy, whole=whole, state_dir=state_dir, ssh=ssh)
    except VTorqueError as error:  # no job id
        outcome = delivery.Delivery("", delivery.REFUSED, f"was not handed over: {error}")
    event_log.note(2, f"the record {outcome.message}")
    if outcome.outcome == delivery.GIVEN_UP:
        syslog.openlog(PROGRAM, 0, syslog.LOG_DAEMON)
        event_log.report(f"the record of start {start} of job {job_id} {outcome.message}", event_log.WARNING)
    return 0 if outcome.outcome == delivery.TAKEN else 1


if __name__ == "__main__":
    sys.exit(main())
