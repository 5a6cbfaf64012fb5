# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of what outlives jobs: records that are older than the site keeps them, and logs that have grown.

A record that the front end has not got is kept for `UNDELIVERED` times as long; then it goes, and that is said.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import stat
import time

from ...frozen import frozen
from ...state import delivery_queue, layout
from .transfer.archive import COMING

DAY_S = 86_400.0
LOOK_S = 3600.0
"""Between two looks: there may be many records, and a day is not short."""
LOOKED = ".looked"
UNDELIVERED = 2
HALF_S = 3600.0
"""What a front end has begun to take for so long is nobody's any more."""
LOG_BYTES = 4 << 20
"""A log of what belongs to no job that is longer becomes its own predecessor; of predecessors one is kept."""


@frozen
class RetentionReport:
    """What was done.

    Attributes:
        removed: the names of records (`state.layout.job_key`).
        failed: what could not be done, in words.
        lost: those of the removed that the front end never got.
    """

    removed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def retire(
    days: int,
    *,
    state_dir: pathlib.Path = layout.STATE_DIR,
    run_dir: pathlib.Path = layout.RUN_DIR,
    now: float | None = None,
) -> RetentionReport:
    """Remove records in which nothing was written for so many days; at most once an hour.

    A start that is still there, as a run directory or with guests, keeps its record however old it is.

    Args:
        days: that a record is kept.
        state_dir: holds `records`, `guests` and `spool`.
        run_dir: holds what is true of jobs that run.
        now: seconds since the epoch; None: now.

    Returns:
        What was done; nothing when it was done in this hour already.
    """
    moment = time.time() if now is None else now
    place = state_dir / "records"
    stamp = place / LOOKED
    try:
        if not place.is_dir() or 0 <= moment - _read_write_time(stamp) < LOOK_S:
            return RetentionReport()
        stamp.touch(mode=0o600)
        return _remove_old(place, moment, days * DAY_S, state_dir, run_dir)
    except OSError as error:
        return RetentionReport(failed=(f"old records of {place}: {error}",))


def _remove_old(
    place: pathlib.Path, now: float, keep_s: float, state_dir: pathlib.Path, run_dir: pathlib.Path
) -> RetentionReport:
    removed, failed, lost = [], [], []
    for path in sorted(place.iterdir()):
        if path.is_symlink() or not path.is_dir():
            continue
        if path.name.startswith(COMING) and _read_write_time(path) < now - HALF_S:
            shutil.rmtree(path, ignore_errors=True)  # with the next look, then
        if layout.start_of(path.name) is None:
            continue
        if (run_dir / "jobs" / path.name).exists() or (state_dir / "guests" / path.name).exists():
            continue
        try:
            waits = delivery_queue.is_marked(path.name, state_dir)
            if max(map(_read_write_time, (path, *path.iterdir()))) < now - keep_s * (UNDELIVERED if waits else 1):
                shutil.rmtree(path)
                removed.append(path.name)
                lost += [path.name] if waits else []
                delivery_queue.done(path.name, state_dir)
        except OSError as error:
            failed.append(f"{path} was not removed: {error}")
    return RetentionReport(tuple(removed), tuple(failed), tuple(lost))


def bound_logs(state_dir: pathlib.Path = layout.STATE_DIR, file: pathlib.Path | None = None) -> None:
    """Let each log of what belongs to no job that has grown become its own predecessor.

    Args:
        state_dir: holds `log`.
        file: the site's own (`log_file`); None: there is none.
    """
    for path in {*(state_dir / "log").glob("*.log"), *([file] if file is not None else ())}:
        with contextlib.suppress(OSError):
            facts = path.stat(follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode) and facts.st_size > LOG_BYTES:
                path.rename(path.with_name(f"{path.name}.1"))


def _read_write_time(path: pathlib.Path) -> float:
    try:
        return path.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0
