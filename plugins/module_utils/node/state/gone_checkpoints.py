# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints of jobs that the batch system does not know any more, and their removal (`checkpoint_store.py`)."""

from __future__ import annotations

import contextlib
import pathlib
import time
import typing as t

from ...errors import VTorqueError
from ...state.layout import start_of
from ...system import files
from .checkpoint_store import forget
from .directories import entries

GONE = "gone"
"""In the directory of a job that the batch system does not know: since when, in seconds since the epoch."""
MASS = 4
"""Checkpoints of so many jobs are removed at once; more look as if it were not the jobs that are gone."""
MASS_S = 86400.0
"""Seconds after which they go all the same: many jobs can end at once."""


def forget_gone(
    store: pathlib.Path,
    is_known: t.Callable[[str], bool],
    twice_s: float,
    *,
    mass: int = MASS,
    any_number: bool = False,
) -> tuple[str, ...]:
    """Remove the checkpoints of jobs that are no more; one must be found gone twice.

    Those of many jobs at once look as if it were the batch server that has lost them: they stay for `MASS_S`.

    Args:
        store: the site's `checkpoint_dir`.
        is_known: asks the batch system whether it has a job that has not ended; raises VTorqueError.
        twice_s: seconds between the two looks.
        mass: of so many jobs at once, and no more.
        any_number: of more than that, too.

    Returns:
        The jobs, and what could not be done, in words.
    """
    done, due = [], {}
    for place in sorted(entries(store)):
        named = start_of(f"{place.name}.0")
        if named is None:
            continue
        try:
            if is_known(named[0]):
                (place / GONE).unlink(missing_ok=True)
            elif (gone_s := _gone_s(place / GONE)) >= twice_s:
                due[named[0]] = gone_s
        except (OSError, VTorqueError) as error:
            done.append(f"checkpoints of job {named[0]} stay: {error}")
    young = [job_id for job_id, gone_s in due.items() if gone_s < MASS_S]
    if young and len(due) > mass and not any_number:
        done.append(
            f"checkpoints of {len(young)} jobs stay: the batch server does not know any of them, and they are more "
            f"than {mass} at once: is its word true? They go a day later, or by vtorque-sweep --all"
        )
        due = {job_id: gone_s for job_id, gone_s in due.items() if job_id not in young}
    for job_id in due:
        try:
            forget(store, job_id)
            done.append(f"checkpoints of job {job_id}")
        except OSError as error:
            done.append(f"checkpoints of job {job_id} stay: {error}")
    return tuple(done)


def _gone_s(mark: pathlib.Path) -> float:
    """Return for how many seconds a job has been gone; it is noted, by this host's clock, where it was not.

    The time of the file itself is that of the file server, whose clock may be another.

    Raises:
        OSError: the mark cannot be read or written.
        VTorqueError: it was not written.
    """
    now = time.time()
    with contextlib.suppress(FileNotFoundError, ValueError):
        if (since := float(mark.read_text("ascii"))) <= now:
            return now - since
    files.write(mark, f"{now:.3f}")
    return 0.0
