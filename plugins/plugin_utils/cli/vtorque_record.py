# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque-record`: the copy of a job's record that the front end keeps, for those who cannot log in to nodes.

    vtorque-record                     on the front end: takes a record on standard input, from the job's first node
    vtorque-record --send JOB START    on that node: announces the record to the site's `record_host`, and hands it over
                                       when its standard input ends

What comes over the connection is checked against the batch server's word: whose job it is, which start it is at, and
that the peer is the job's mother superior.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import subprocess
import sys
import typing as t

from ...module_utils import records
from ...module_utils.errors import SiteFault, UserFault, VTorqueError, printable
from ...module_utils.job import bounded, hand_over, retention
from ...module_utils.job import policy as site_policy
from ...module_utils.job.batch import open_batch, same_host
from ...module_utils.key_exchange import KEX_ALGORITHMS
from ..node_check import check_peer
from . import messages

PROGRAM = "vtorque-record"
SEND = "--send"
CALL_S = 5.0
SEND_S = 15.0
"""Seconds for the way to the front end once the record is whole; nobody waits for it."""
NICE = 10
"""The epilogue has more to do."""


def main() -> int:
    """The program; returns its exit status."""
    os.umask(0o022)
    words = sys.argv[1:]
    if len(words) == 3 and words[0] == SEND and words[2].isdecimal():
        os.nice(NICE)
        return send(words[1], int(words[2]), sys.stdin.buffer)
    if words:
        error = UserFault(f"{PROGRAM} {printable(' '.join(words))[:100]}", "takes nothing, or --send JOB START")
        return messages.run(PROGRAM, lambda: _raise(error))
    return messages.run(PROGRAM, lambda: receive(sys.stdin.buffer, os.environ))


def _raise(error: VTorqueError) -> t.NoReturn:
    raise error


def receive(
    stream: t.BinaryIO, environment: t.Mapping[str, str], *,
    load: t.Callable[[], site_policy.Policy] = site_policy.load,
    state_dir: pathlib.Path = records.STATE_DIR,
    run_dir: pathlib.Path = records.RUN_DIR,
) -> int:  # fmt: skip
    """Take a record.

    Args:
        stream: what is handed over, to its end.
        environment: holds SSH_CONNECTION.
        load: gives the site's policy.
        state_dir: holds the records.
        run_dir: holds what is true of jobs that run.

    Returns:
        0: it is kept.

    Raises:
        VTorqueError: it is not of the form, not from the job's first node, or was not written.
        SiteFault: the batch server does not answer, or does not know the job.
    """
    connection = environment.get("SSH_CONNECTION", "")
    if not connection:
        raise VTorqueError("a record is taken over ssh alone", "nobody is at the other end of this")
    announcement = hand_over.read_announcement(stream)
    policy, broken = site_policy.load_usable(load)
    job = open_batch(policy, front_end=True, timeout_s=CALL_S).job(announcement.job_id)
    check_peer(job, connection)
    if job.job_id != announcement.job_id or announcement.start > job.start_count:
        raise VTorqueError(
            f"start {announcement.start} of job {announcement.job_id}",
            f"the server is at start {job.start_count} of {job.job_id}",
        )
    try:
        owner = pwd.getpwnam(job.euser).pw_uid
    except KeyError:
        raise SiteFault(
            f"user {printable(job.euser)[:40]!r} of job {job.job_id}", "is not known on this host"
        ) from None
    hand_over.store(hand_over.read(stream, announcement), owner, state_dir)
    if broken is not None:  # how long records are kept is not known
        return 0
    for trouble in retention.retire(policy.record_days, state_dir=state_dir, run_dir=run_dir).failed:
        print(f"{PROGRAM}: {trouble}", file=sys.stderr)
    return 0


def send(
    job_id: str, start: int, whole: t.BinaryIO, *,
    load: t.Callable[[], site_policy.Policy] = site_policy.load,
    state_dir: pathlib.Path = records.STATE_DIR,
    ssh: t.Sequence[str] = ("/usr/bin/ssh",),
) -> int:  # fmt: skip
    """Announce a record, hand it over when it is whole, and say on standard error, the job's log, what came of it.

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
    try:
        policy, _broken = site_policy.load_usable(load)
        host = policy.record_host
        if host is None or same_host(host, os.uname().nodename):
            return 0
        with subprocess.Popen(
            [*ssh, *ssh_arguments(policy), host, f"{policy.prefix}/bin/{PROGRAM}"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/",
            env=bounded.clean_environment(),
        ) as process:  # fmt: skip
            try:
                told = _talk(process, job_id, start, whole, state_dir)
            except BaseException:
                process.kill()
                raise
        word = f"was handed over to {host}" if process.returncode == 0 else f"was not handed over to {host}: {told}"
        _log(f"the record {word}")
        return 0 if process.returncode == 0 else 1
    except (OSError, VTorqueError) as error:
        _log(f"the record was not handed over: {error}")
    except subprocess.TimeoutExpired:
        _log(f"the record was not handed over within {SEND_S:.0f} s")
    return 1


def _talk(process: subprocess.Popen[bytes], job_id: str, start: int, whole: t.BinaryIO, state_dir: pathlib.Path) -> str:
    """What the other end complained of, when it has ended."""
    stdin = t.cast("t.IO[bytes]", process.stdin)
    with contextlib.suppress(BrokenPipeError):  # its complaint says why
        os.write(stdin.fileno(), hand_over.announced(job_id, start))
    whole.read()
    parcel = hand_over.pack(job_id, start, state_dir / "records" / records.job_key(job_id, start))
    _nothing, complaint = process.communicate(hand_over.written(parcel), timeout=SEND_S)
    return printable(complaint.decode(errors="replace").strip().replace("\n", " "))[:500]


def ssh_arguments(policy: site_policy.Policy) -> tuple[str, ...]:
    """Nobody's configuration, no question, a host key that is known."""
    options = (
        "ControlMaster=no", "ControlPath=none", "BatchMode=yes", "StrictHostKeyChecking=yes", "ForwardAgent=no",
        "ForwardX11=no", f"ConnectTimeout={policy.ssh_timeout}", "ServerAliveInterval=5", "ServerAliveCountMax=3",
        f"KexAlgorithms={KEX_ALGORITHMS}",
    )  # fmt: skip
    return ("-F", "none", "-T", "-l", "root", *(word for option in options for word in ("-o", option)))


def _log(text: str) -> None:
    os.write(2, records.log_line(text))


if __name__ == "__main__":
    sys.exit(main())
