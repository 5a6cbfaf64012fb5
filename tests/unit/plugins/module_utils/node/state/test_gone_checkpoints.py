# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints go with their job, and not because a batch server has lost its jobs or a clock is wrong."""

from __future__ import annotations

import functools
import os
import pathlib
import time

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import checkpoint_store, gone_checkpoints

JOB = "7.head"


def set_gone(store: pathlib.Path, job_id: str, ago_s: float) -> None:
    mark = checkpoint_store.job_dir(store, job_id) / gone_checkpoints.GONE
    mark.unlink(missing_ok=True)
    mark.write_text(f"{time.time() - ago_s:.3f}")


def make_stored(store: pathlib.Path, *jobs: str) -> None:
    for job_id in jobs:
        (checkpoint_store.job_dir(store, job_id) / "1").mkdir(parents=True)


def test_checkpoints_of_a_job_that_is_gone_are_removed_at_the_second_look(store: pathlib.Path) -> None:
    make_stored(store, JOB)
    known = {JOB}
    look = functools.partial(gone_checkpoints.forget_gone, store, known.__contains__, 60.0)
    assert look() == ()
    known.clear()
    assert look() == ()
    assert look() == ()
    known.add(JOB)
    assert look() == ()
    assert not (checkpoint_store.job_dir(store, JOB) / "gone").exists()
    known.clear()
    look()
    set_gone(store, JOB, 61)
    assert look() == (f"checkpoints of job {JOB}",)
    assert list(store.iterdir()) == []


def make_gone(store: pathlib.Path, count: int) -> list[str]:
    jobs = [f"{number}.head" for number in range(10, 10 + count)]
    make_stored(store, *jobs)
    for job_id in jobs:
        set_gone(store, job_id, 120)
    return jobs


def test_checkpoints_of_many_jobs_at_once_stay_for_a_day(store: pathlib.Path) -> None:
    """A batch server that has lost its jobs knows none of them."""
    jobs = make_gone(store, 5)
    look = functools.partial(gone_checkpoints.forget_gone, store, lambda _job: False, 60.0)
    (problem,) = look()
    assert problem.startswith("checkpoints of 5 jobs stay: ")
    assert len(list(store.iterdir())) == 5
    set_gone(store, jobs[0], gone_checkpoints.MASS_S + 1)
    assert look()[1:] == (f"checkpoints of job {jobs[0]}",)
    assert len(list(store.iterdir())) == 4


def test_checkpoints_of_many_jobs_go_at_once_where_root_says_so(store: pathlib.Path) -> None:
    jobs = make_gone(store, 5)
    found = gone_checkpoints.forget_gone(store, lambda _job: False, 60.0, any_number=True)
    assert found == tuple(f"checkpoints of job {job_id}" for job_id in jobs)
    assert not list(store.iterdir())


def test_clock_of_the_file_server_does_not_shorten_the_time_between_two_looks(store: pathlib.Path) -> None:
    jobs = make_gone(store, 1)
    mark = checkpoint_store.job_dir(store, jobs[0]) / gone_checkpoints.GONE
    mark.unlink()
    look = functools.partial(gone_checkpoints.forget_gone, store, lambda _job: False, 60.0)
    assert look() == ()
    os.utime(mark, (time.time() - 3600,) * 2)
    assert look() == ()
    mark.unlink()
    mark.touch()  # of an earlier version
    os.utime(mark, (time.time() - 3600,) * 2)
    assert look() == ()
    set_gone(store, jobs[0], -3600)
    assert look() == ()
    set_gone(store, jobs[0], 61)
    assert look() == (f"checkpoints of job {jobs[0]}",)


def test_checkpoints_stay_where_the_batch_system_is_silent(store: pathlib.Path) -> None:
    make_stored(store, JOB)

    def is_known(_job_id: str) -> bool:
        raise SiteFault("qstat", "did not answer")

    assert gone_checkpoints.forget_gone(store, is_known, 0.0)[0].endswith("qstat: did not answer")
    assert checkpoint_store.generations(store, JOB) == (1,)
