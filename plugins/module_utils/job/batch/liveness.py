# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a start lives, as the batch server reports it; for the sweep, which knows no batch system."""

from __future__ import annotations

import typing as t

from ...errors import SiteFault
from .api import BatchJob, BatchSystem, UnknownJob
from .host_match import same_host

RUNNING = frozenset("RES")
"""Letters of a job whose guests are wanted: running, ending (its epilogue is at work), suspended."""
RESTING = frozenset("QHWC")
"""Queued, held, waiting, complete: nothing of it is on any node."""
SILENT = 3
"""After so many questions without an answer no more is asked: each may have taken its whole time."""


def start_lives(job: BatchJob, start: int, node: str) -> bool:
    """Return whether this start of a job lives on this node.

    Args:
        job: the server's word.
        start: its number, as the server had it when the start began; 0: it was not known then.
        node: a node, by its long or short name.

    Raises:
        SiteFault: the word does not tell.
    """
    what = f"start {start} of job {job.job_id}"
    if job.state in RESTING:
        return False
    if job.state not in RUNNING:
        raise SiteFault(what, f"the batch server says state {job.state[:20]!r} of it, which tells nothing")
    if start > job.start_count:
        # a server that was restored from an older copy
        raise SiteFault(what, f"the batch server is only at start {job.start_count}")
    if not job.nodes:
        raise SiteFault(what, "the batch server names no node of it, although it runs")
    return start in (0, job.start_count) and any(same_host(node, host) for host in job.nodes)


def is_suspended(job: BatchJob, start: int) -> bool:
    """Return whether the batch system has suspended this start of a job.

    Args:
        job: the server's word.
        start: its number.
    """
    return job.state == "S" and job.start_count == start


class JobAnswers:
    """The batch server's word on jobs, for one round of questions: it is asked once for each job.

    Args:
        batch: who is asked.
    """

    def __init__(self, batch: BatchSystem) -> None:
        self._batch = batch
        self._known: dict[str, BatchJob | SiteFault] = {}
        self._silent: list[SiteFault] = []

    def job(self, job_id: str) -> BatchJob:
        """Return what the server says of a job.

        Raises:
            UnknownJob: it knows no such job.
            SiteFault: it does not tell.
        """
        if job_id not in self._known:
            self._known[job_id] = self._query(job_id)
        word = self._known[job_id]
        if isinstance(word, SiteFault):
            raise word
        return word

    def _query(self, job_id: str) -> BatchJob | SiteFault:
        if len(self._silent) >= SILENT:
            return self._silent[-1]
        try:
            return self._batch.job(job_id)
        except UnknownJob as error:
            return error
        except SiteFault as error:
            self._silent.append(error)
            return error


def by_server(asked: JobAnswers, node: str) -> t.Callable[[str, int], bool]:
    """`is_alive` for the sweep of this node.

    Args:
        asked: the batch server.
        node: this node.

    Returns:
        Takes job id and start; raises SiteFault when the server does not tell.
    """

    def is_alive(job_id: str, start: int) -> bool:
        try:
            return start_lives(asked.job(job_id), start, node)
        except UnknownJob:
            return False

    return is_alive
