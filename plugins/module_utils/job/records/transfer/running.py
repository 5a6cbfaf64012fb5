# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a job stands that runs, for its owner on the front end: its record so far, and its last samples.

    {"version": 2, "job_id": "4711.head", "start": 1, "running": true}
    {"files": [["record.json", 1234], ["samples.jsonl", 5678]]}

The sweep of the mother superior sends it, first of a job that it finds running, and then ever more rarely: a site of a
thousand jobs shall not keep its front end busy with what nobody looks at.  A start itself does nothing for it: most
jobs are over before anybody asks, and each would cost their node a program and the front end a query of the batch
server.  Nothing of it is tried again.  It is taken by the same proof as a record, and goes when that comes.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import time
import typing as t

from ....errors import VTorqueError
from ....state import layout
from ....system import files
from ....system.clock import Deadline
from ....system.process.environment import TOOL_ENVIRONMENT
from ....wire.form import FormError
from ....wire.messages import HOST_NAME
from ....wire.series import FIGURES
from ...config.parameters import Policy
from . import delivery, transfer_format
from .transfer_format import Parcel

FIRST_S, MOST_S = 60.0, 900.0
"""A job is sent again when it has run as long again since it was sent last, but within these bounds."""
FORGET_S = 86_400.0
"""What was not sent again for so long is of a job whose record will not come."""
SWEEP_S, SWEEP_TRIES = 30.0, 20
"""What one sweep spends on jobs that run: so many seconds and tries."""
STAMP = "sent"
"""In the run directory of a start: when the front end was sent last how it stands."""
_MOST_GUESTS = 4096
_NUMBER = (int, float)


def pack(job_id: str, start: int, directory: pathlib.Path) -> Parcel:
    """Return what there is to send.

    Args:
        job_id: the job.
        start: its start.
        directory: of its record.

    Raises:
        VTorqueError: there is no record, or it cannot be read.
    """
    return transfer_format.pack(job_id, start, directory, running=True)


def check_samples(content: bytes) -> None:
    """Check that samples are of the form in which a worker writes them; the first line is a head, or a part of one.

    Args:
        content: what came.

    Raises:
        FormError: they are of another form.
    """
    try:
        samples = [json.loads(line) for line in content.decode("ascii").splitlines()[1:]]
    except (ValueError, RecursionError):
        raise FormError("the samples", "are no lines of JSON") from None
    for sample in samples:
        guests = sample.get("guests") if isinstance(sample, dict) else None
        if not isinstance(guests, dict) or not _is_number(sample.get("at")) or len(guests) > _MOST_GUESTS:
            raise FormError("the samples", "are not those of guests at a time")
        for name, figures in guests.items():
            if not re.fullmatch(HOST_NAME, name) or not isinstance(figures, list) or len(figures) != len(FIGURES):
                raise FormError("the samples", "have other figures")
            if not all(figure is None or _is_number(figure) for figure in figures):
                raise FormError("the samples", "have a figure that is no number")


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBER) and not isinstance(value, bool) and 0 <= value < 1e18


def put(parcel: Parcel, owner_uid: int, state_dir: pathlib.Path = layout.STATE_DIR) -> bool:
    """Store how a job stands, for its owner to read, in place of what was known; what is too old goes.

    Args:
        parcel: as it was read.
        owner_uid: of the job's user on this host.
        state_dir: holds `running` and `records`.

    Returns:
        False: its record is here already.

    Raises:
        VTorqueError: it was not written.
    """
    key = layout.job_key(parcel.job_id, parcel.start)
    _forget_old(state_dir)
    if (state_dir / "records" / key / layout.RECORD).exists():
        return False
    directory = state_dir / layout.RUNNING / key
    files.make_record_directory(directory, owner_uid)
    for name, content in parcel.files.items():
        files.write(directory / name, content.decode("utf-8", "replace"), reader_uid=owner_uid)
    return True


def forget(job_id: str, start: int, state_dir: pathlib.Path = layout.STATE_DIR) -> None:
    """Forget how a job stood: its record is here, or it began again.

    Args:
        job_id: the job.
        start: up to which of its starts.
        state_dir: holds `running`.
    """
    with contextlib.suppress(OSError):
        for path in (state_dir / layout.RUNNING).iterdir():
            named = layout.start_of(path.name)
            if named is not None and named[0] == job_id and named[1] <= start:
                _remove(path)


def _forget_old(state_dir: pathlib.Path) -> None:
    now = time.time()
    with contextlib.suppress(OSError):
        for path in (state_dir / layout.RUNNING).iterdir():
            if not 0 <= now - path.stat().st_mtime < FORGET_S:
                _remove(path)


def _remove(directory: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(directory)


def send(
    job_id: str,
    start: int,
    host: str,
    policy: Policy,
    *,
    state_dir: pathlib.Path = layout.STATE_DIR,
    run_dir: pathlib.Path = layout.RUN_DIR,
    ssh: t.Sequence[str] = ("/usr/bin/ssh",),
) -> str:
    """Send the front end how a job stands.

    Args:
        job_id: the job.
        start: its start.
        host: the front end.
        policy: says how it is reached.
        state_dir: holds records.
        run_dir: holds the start's run directory.
        ssh: the program.

    Returns:
        See `delivery.outcome_of`.
    """
    key = layout.job_key(job_id, start)
    try:
        parcel = pack(job_id, start, state_dir / "records" / key)
        (run_dir / "jobs" / key / STAMP).touch(mode=0o600)
        done = subprocess.run(
            delivery.record_command(host, policy, ssh),
            input=transfer_format.format_announcement(job_id, start, running=True)
            + transfer_format.format_parcel(parcel),
            capture_output=True,
            timeout=delivery.SEND_S,
            check=False,
            cwd="/",
            env=TOOL_ENVIRONMENT,
        )
    except subprocess.TimeoutExpired:
        return delivery.AWAY
    except (OSError, VTorqueError):  # the job is over
        return delivery.REFUSED
    return delivery.outcome_of(done.returncode)


def send_due(
    policy: Policy,
    deadline: Deadline,
    *,
    state_dir: pathlib.Path = layout.STATE_DIR,
    run_dir: pathlib.Path = layout.RUN_DIR,
    ssh: t.Sequence[str] = ("/usr/bin/ssh",),
) -> tuple[str, ...]:
    """Send the front end how the jobs stand that this node leads and that are due, until it turns out to be away.

    Args:
        policy: names the front end.
        deadline: when to end.
        state_dir: holds records.
        run_dir: holds what is true of jobs that run.
        ssh: the program.

    Returns:
        The keys of what it has taken.
    """
    host = delivery.front_end(policy)
    if host is None:
        return ()
    until, tries, taken = Deadline.after(deadline.left_s(SWEEP_S)), 0, []
    for directory in sorted(path.parent for path in (run_dir / "jobs").glob(f"*/{layout.READY}")):
        start = layout.start_of(directory.name)
        if start is None or not _is_due(directory):
            continue
        tries += 1
        outcome = send(*start, host, policy, state_dir=state_dir, run_dir=run_dir, ssh=ssh)
        if outcome == delivery.TAKEN:
            taken.append(directory.name)
        if outcome == delivery.AWAY or tries == SWEEP_TRIES or until.left_s() < delivery.SEND_S:
            break
    return tuple(taken)


def _is_due(directory: pathlib.Path) -> bool:
    try:
        began = (directory / layout.READY).stat().st_mtime
        sent = (directory / STAMP).stat().st_mtime
    except FileNotFoundError:
        return True
    except OSError:
        return False
    wait_s = min(max(sent - began, FIRST_S), MOST_S)
    return not 0 <= time.time() - sent < wait_s
