# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs of `vmgr selftest`: submitted by vsub, waited for, and taken back when nobody waits for them any more."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import pwd
import secrets
import shutil
import stat
import subprocess
import threading
import time
import typing as t

from ...module_utils.errors import SiteFault, UserFault, VTorqueError
from ...module_utils.job.batch.api import BatchJob, BatchSystem, UnknownJob
from ...module_utils.job.doctor import selftest
from ...module_utils.job.records import job_record
from ...module_utils.text import printable
from ...module_utils.wire.health_report import BAD, Finding, Report
from . import as_user

if t.TYPE_CHECKING:
    from ...module_utils.job.batch.contract import TrialAdapter

POLL_S = 1.0
"""A batch server is asked; it tells nobody by itself."""
FILES_S = 30.0
"""Seconds for the batch system to bring a job's files after its end."""
RECORD_S = 60.0
"""Seconds for a job's record to come to the front end."""
GONE_S = 30.0
"""Seconds for a job that was taken back to be gone: its files lie in our directory."""
VSUB_S = 60.0
LIMIT = 100_000
"""Bytes of a job's file that are read."""


@dataclasses.dataclass
class Trial:
    """One job.

    Attributes:
        where: a number of nodes, or a node's name.
        hosts: how many nodes that is.
        directory: the user's, for this job alone.
        token: its word.
        job_id: "" until it was submitted.
        job: as the server last described it.
        ended: whether it is over.
        failure: why nothing can be proven.
        in_time: whether it ended in time.
        workload_s: seconds that the caller's program ran; None: there is none, or it was not run.
    """

    where: str
    hosts: int
    directory: pathlib.Path
    token: str
    job_id: str = ""
    job: BatchJob | None = None
    ended: bool = False
    failure: Finding | None = None
    in_time: bool = True
    workload_s: float | None = None

    @property
    def state_text(self) -> str:
        """How it stands, in words."""
        state = self.job.state if self.job else "?"
        comment = f" ({printable(self.job.comment)[:200]})" if self.job and self.job.comment else ""
        return f"job {self.job_id} is in state {state}{comment}"


def prepare(home: pathlib.Path, where: str, hosts: int, job: TrialAdapter, workload: str = "") -> Trial:
    """Make the directory of a job; called with the user's rights.

    Args:
        home: the user's.
        where: a number of nodes, or a node's name.
        hosts: how many nodes that is.
        job: how the batch system has it.
        workload: a program that it runs besides; "": none.

    Raises:
        UserFault: it cannot be made.
    """
    token = secrets.token_hex(8)
    directory = home / f".{selftest.NAME}-{token}"
    try:
        directory.mkdir(mode=0o700)
        (directory / selftest.TOKEN).write_text(f"{token}\n", encoding="ascii")
        text = selftest.render_script(
            token, str(directory), counts=job.COUNTS, node_file=job.NODE_FILE, workload=workload
        )
        (directory / "job.sh").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserFault(
            str(directory), error.strerror or str(error), "the job's files lie in the user's home"
        ) from error
    return Trial(where, hosts, directory, token)


def submit(
    trial: Trial,
    vsub: str,
    request: str,
    who: pwd.struct_passwd,
    *,
    job: TrialAdapter,
    batch: BatchSystem,
    queue: str | None = None,
) -> None:
    """Submit it; a refusal is a finding, with vsub's message.

    Args:
        trial: the job.
        vsub: the program.
        request: what follows `-vm`.
        who: the user.
        job: how the batch system has it.
        batch: where the job comes to be.
        queue: of the batch system; None: its default.
    """
    argv = [
        vsub,
        *job.options(selftest.NAME, str(trial.directory), trial.where, queue),
        "-vm",
        request,
        str(trial.directory / "job.sh"),
    ]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=VSUB_S,
            check=False,
            cwd=who.pw_dir,
            env=as_user.environment(who),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        trial.failure = Finding("submitted", BAD, BAD, f"vsub: {error}", "is vTorque installed on this host?")
        return
    try:
        job_id = "" if done.returncode else job.job_id(done.stdout.decode("utf-8", "replace"), batch)
    except SiteFault as error:
        trial.failure = Finding("submitted", BAD, BAD, f"{error}; the job goes on: {job.DELETE} it")
        return
    if not job_id:
        output = printable(" ".join(done.stderr.decode("utf-8", "replace").split())[:500])
        trial.failure = Finding("submitted", BAD, BAD, output or f"vsub ended with {done.returncode}")
        return
    trial.job_id = job_id


def wait(trials: t.Sequence[Trial], batch: BatchSystem, timeout_s: float, advance: t.Callable[[str], None]) -> None:
    """Wait until all of them are over, held, or late; those that are not over are taken back.

    Args:
        trials: jobs.
        batch: where they are.
        timeout_s: seconds for all together.
        advance: hears what is being waited for.
    """
    pause, end = threading.Event(), time.monotonic() + timeout_s
    open_trials = [trial for trial in trials if trial.job_id and not trial.failure]
    silent = ""
    while open_trials:
        for trial in open_trials:
            try:
                _check_trial(trial, batch)
                silent = ""
            except SiteFault as error:  # it may come back, and time is bounded
                silent = f"; the batch server does not answer: {error}"
        open_trials = [trial for trial in open_trials if not trial.ended and not trial.failure]
        if open_trials and time.monotonic() >= end:
            for trial in open_trials:
                trial.in_time = False
                problem = f"{trial.state_text}, not over after {timeout_s:.0f} s{silent}"
                trial.failure = Finding("ended", BAD, "late", problem, "is a node free for it? --timeout waits longer")
            break
        if open_trials:
            advance(f"{len(trials) - len(open_trials)} of {len(trials)} are over; {open_trials[0].state_text}")
            pause.wait(POLL_S)
    take_back(trials, batch)


def _check_trial(trial: Trial, batch: BatchSystem) -> None:
    try:
        trial.job = batch.job(trial.job_id)
    except UnknownJob:
        trial.ended = True  # a server that keeps no jobs that are over
        return
    if trial.job.state == "C":
        trial.ended = True
    elif trial.job.state == "H":
        problem = f"it is held: {printable(trial.job.comment)[:300] or 'no reason is known'}"
        trial.failure = Finding("ended", BAD, "held", problem, f"vmgr job show {trial.job_id}; vmgr doctor")


def take_back(trials: t.Sequence[Trial], batch: BatchSystem) -> tuple[str, ...]:
    """Delete what is not over, and wait for it to be gone.

    Args:
        trials: jobs.
        batch: where they are.

    Returns:
        The jobs that were deleted.
    """
    mine = [trial for trial in trials if trial.job_id and not trial.ended]
    deleted = []
    for trial in mine:
        with contextlib.suppress(VTorqueError):
            batch.delete(trial.job_id)
            deleted.append(trial.job_id)
    pause, end = threading.Event(), time.monotonic() + GONE_S
    while mine and time.monotonic() < end:
        mine = [trial for trial in mine if not _gone(trial, batch)]
        if mine:
            pause.wait(POLL_S)
    return tuple(deleted)


def _gone(trial: Trial, batch: BatchSystem) -> bool:
    try:
        return batch.job(trial.job_id).state == "C"  # an exiting one still brings its files
    except UnknownJob:
        return True
    except SiteFault:
        return False


def report(
    trial: Trial, expected: selftest.ExpectedOutcome, records: pathlib.Path
) -> tuple[Report, job_record.JobRecord | None]:
    """What is proven by a job that was waited for.

    Args:
        trial: the job.
        expected: what must have come of it.
        records: of this host.

    Returns:
        Findings under the name of its nodes, and its record.
    """
    label = ",".join(trial.job.nodes) if trial.job and trial.job.nodes else trial.where
    submitted = [Finding("submitted", cell=trial.job_id)] if trial.job_id else []
    if trial.failure is not None:
        record = _record(trial, records, 0.0) if trial.job_id else None
        reasons = "; ".join(record.reasons) if record else ""
        failure = (
            dataclasses.replace(trial.failure, problem=f"{trial.failure.problem}; {reasons}")
            if reasons
            else trial.failure
        )
        return Report(label, (*submitted, failure), asked=trial.in_time), record
    paths = (trial.directory / "out", trial.directory / "err")
    _until(lambda: all(path.exists() for path in paths), FILES_S)
    record = _record(trial, records, RECORD_S if expected.keeps_records else 0.0)
    output, errors = map(_read, paths)
    trial.workload_s = selftest.workload_seconds(output or "", trial.token)
    came = selftest.JobOutcome(
        trial.job.exit_status if trial.job else None,
        output,
        errors,
        _read(trial.directory / selftest.SEEN) or "",
        record,
    )
    return Report(label, (*submitted, Finding("ended"), *selftest.check_outcome(expected, came))), record


def _record(trial: Trial, records: pathlib.Path, timeout_s: float) -> job_record.JobRecord | None:
    found: list[job_record.JobRecord] = []

    def there() -> bool:
        with contextlib.suppress(VTorqueError):
            found[:] = [job_record.find(trial.job_id, records)]
        return bool(found) and found[0].ended is not None

    _until(there, timeout_s)
    return found[0] if found else None


def _until(probe: t.Callable[[], bool], timeout_s: float) -> None:
    pause, end = threading.Event(), time.monotonic() + timeout_s
    while not probe() and time.monotonic() < end:
        pause.wait(POLL_S)


def _read(path: pathlib.Path) -> str | None:
    """The begin of a file; None: there is no file, whatever else the job put in its place."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return None
            return stream.read(LIMIT).decode("utf-8", "replace")
    except OSError:
        return None


def tidy(trials: t.Iterable[Trial]) -> None:
    """Take the directories of jobs away.

    Args:
        trials: jobs.
    """
    for trial in trials:
        shutil.rmtree(trial.directory, ignore_errors=True)
