# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkpoint of a whole job, on all of its nodes at once: all guests stand still, all are saved, one name commits it.

    can_save -> hold -> held -> store -> commit (a rename) -> let_go

Whatever fails before the commit lets all guests go on, and the former checkpoint stays.  A node whose mother superior
is lost meanwhile lets its guests go on by itself when the time is over (`pause_order.py`).

A job that its owner suspends (`park`) ends after the commit: its guests stand still until they are removed, so that
nothing is done twice.  Where the batch system does not end it, they go on.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import time
import typing as t

from ....module_utils.errors import VTorqueError
from ....module_utils.job.batch.api import BatchJob
from ....module_utils.job.batch.host_match import same_host
from ....module_utils.job.config.parameters import Policy
from ....module_utils.job.plan.job_plan import JobPlan
from ....module_utils.node.state import checkpoint_store
from ....module_utils.node.state.settings import NodeSettings
from ....module_utils.state import layout
from ....module_utils.system import files
from ....module_utils.wire.messages import VERSION, CheckpointStep
from .node_steps import take_step

LOOK_S = 0.2
"""Between two questions whether all guests are on the disk."""
PARK_S = 300.0
"""How long guests of a job that is to end stand still at most, until the batch system has ended it."""
MOST_S = 3600.0
"""What a step can say (`CheckpointStep.seconds`)."""
Tell = t.Callable[[str, CheckpointStep, float], tuple[str, ...]]
"""Asks another node for a step within seconds; returns why it is not done; raises VTorqueError."""


class CheckpointRefused(VTorqueError):
    """No checkpoint was begun: this is no time for one, or the guests cannot be saved."""


def take_checkpoint(
    job: BatchJob,
    policy: Policy,
    settings: NodeSettings,
    tell: Tell,
    log: t.Callable[[str], None],
    park: t.Callable[[], None] | None = None,
) -> int:
    """Take a checkpoint of a job that this node leads.

    Args:
        job: the batch server's word, of a job that runs.
        policy: the site's.
        settings: NodeSettings of this node.
        tell: asks other nodes.
        log: takes a line for the job's log.
        park: ends the start, and has the job rest in the checkpoint; raises VTorqueError where it runs on.  None: it
            is to go on.

    Returns:
        Its number.

    Raises:
        VTorqueError: there is none; the guests go on.
    """
    store = settings.checkpoint_dir
    if store is None:
        raise CheckpointRefused(f"a checkpoint of job {job.job_id}", "this site has no checkpoint_dir")
    _refuse_if_unwanted(job, policy, store, park=park is not None)
    newest = next(iter(checkpoint_store.generations(store, job.job_id)), 0)
    attempt = _Attempt(job, settings, tell, newest + 1, float(policy.checkpoint_pause), PARK_S if park else 0.0)
    checkpoint_store.drop_new(store, job.job_id)
    if reasons := attempt.take_step("can_save"):
        raise CheckpointRefused(f"a checkpoint of job {job.job_id}", "; ".join(reasons))
    began, parked = time.monotonic(), False
    try:
        attempt.save(store)
        if park is not None:
            _end_start(job, store, settings, park)
            parked = True
    except OSError as error:
        raise VTorqueError(f"a checkpoint of job {job.job_id}", str(error)) from error
    finally:
        if not parked:
            attempt.let_go(log)
        checkpoint_store.drop_new(store, job.job_id)
    took_s = f"{time.monotonic() - began:.1f} s"
    how = f"it rests there, saved in {took_s}" if parked else f"its guests stood still for {took_s}"
    log(f"checkpoint {newest + 1} of job {job.job_id}: {how}")
    return newest + 1


def nodes_in_use(job: BatchJob, run_dir: pathlib.Path) -> tuple[str, ...]:
    """Return the nodes of a job that have guests or stay bare: spare ones have nothing to hold or to save.

    Args:
        job: the batch server's word.
        run_dir: where this node, which leads it, has the plan of its start.
    """
    with contextlib.suppress(OSError, VTorqueError):
        path = layout.run_directory(job.job_id, job.start_count, run_dir) / layout.PLAN
        used = JobPlan.from_json(path.read_text(encoding="utf-8")).in_use
        return tuple(node for node in job.nodes if node in used)
    return tuple(dict.fromkeys(job.nodes))


def _refuse_if_unwanted(job: BatchJob, policy: Policy, store: pathlib.Path, *, park: bool) -> None:
    """Raises Refused where none is to be made of a job now, whatever its guests are."""
    if park and not job.rerunnable:
        raise CheckpointRefused(f"the suspension of job {job.job_id}", "it was submitted as one that may not run again")
    newest = next(iter(checkpoint_store.generations(store, job.job_id)), 0)
    # who suspends a job asks for no more of them; but where it did not end at the first time, it may be asked for ever
    if newest and (not park or checkpoint_store.read_parked(store, job.job_id).get("start") == job.start_count):
        made = (checkpoint_store.job_dir(store, job.job_id) / str(newest)).stat().st_mtime
        if (left_s := made + policy.checkpoint_min * 60 - time.time()) > 0:
            raise CheckpointRefused(f"a checkpoint of job {job.job_id}", f"the next one may begin in {left_s:.0f} s")


def _end_start(job: BatchJob, store: pathlib.Path, settings: NodeSettings, park: t.Callable[[], None]) -> None:
    """End a start whose guests are in a checkpoint; what is to be done in them at its end, is not done.

    Raises:
        OSError: it goes on.
        VTorqueError: it goes on.
    """
    mark = layout.run_directory(job.job_id, job.start_count, settings.run_dir) / layout.PARKED
    checkpoint_store.mark_parked(store, job.job_id, job.start_count, job.euser)
    mark.touch(mode=0o600)
    try:
        park()
    except VTorqueError:
        mark.unlink(missing_ok=True)
        checkpoint_store.mark_parked(store, job.job_id, job.start_count, job.euser, failed=True)
        raise


class _Attempt:
    def __init__(
        self, job: BatchJob, settings: NodeSettings, tell: Tell, generation: int, pause_s: float, longer_s: float
    ) -> None:
        self._job, self._settings, self._tell, self._generation = job, settings, tell, generation
        self._nodes = nodes_in_use(job, settings.run_dir)
        self._pause_s, self._until = pause_s, time.monotonic() + pause_s
        self._hold_s = min(MOST_S, pause_s + longer_s)

    def save(self, store: pathlib.Path) -> None:
        """Have all guests stand still, and a checkpoint of them committed.

        Raises:
            OSError: there is none.
            VTorqueError: there is none.
        """
        if reasons := self.take_step("hold"):
            raise VTorqueError(f"a checkpoint of job {self._job.job_id}", "; ".join(reasons))
        while waiting := self.take_step("held"):
            self.check_time(f"{', '.join(waiting)} not on the disk")
            time.sleep(LOOK_S)
        if reasons := self.take_step("store"):
            raise VTorqueError(f"a checkpoint of job {self._job.job_id}", "; ".join(reasons))
        self.check_time("the copies were not made")
        checkpoint_store.commit(store, self._job.job_id, self._generation, self.manifest(store))

    def take_step(self, do: str) -> list[str]:
        """Have one step done on all nodes at the same time; returns why it is not done somewhere."""
        if do == "hold":
            self._until = time.monotonic() + self._pause_s
        left_s = max(1.0, self._until - time.monotonic())
        with concurrent.futures.ThreadPoolExecutor(max(1, len(self._nodes))) as pool:
            works = [pool.submit(self._step, host, do, left_s) for host in self._nodes]
            return [why for work in works for why in work.result()]

    def _step(self, host: str, do: str, left_s: float) -> tuple[str, ...]:
        seconds = self._hold_s if do == "hold" else left_s
        step = CheckpointStep(VERSION, do, self._job.job_id, self._job.start_count, host, self._generation, seconds)
        if same_host(host, self._settings.node_name):
            return take_step(step, self._settings)
        return self._tell(host, step, left_s)

    def check_time(self, what: str) -> None:
        if time.monotonic() > self._until:
            why = f"{what} within checkpoint_pause ({self._pause_s:.0f} s)"
            raise VTorqueError(f"a checkpoint of job {self._job.job_id}", why)

    def let_go(self, log: t.Callable[[str], None]) -> None:
        try:
            self.take_step("let_go")
        except VTorqueError as error:  # those go on by themselves
            log(f"not told that its guests go on: {error}")

    def manifest(self, store: t.Any) -> dict[str, t.Any]:
        """What a start needs to begin from here: the plan of this one with its keys, and what each guest has."""
        directory = layout.run_directory(self._job.job_id, self._job.start_count, self._settings.run_dir)
        plan = JobPlan.from_json((directory / layout.PLAN).read_text(encoding="utf-8"))
        place = checkpoint_store.job_dir(store, self._job.job_id) / f"{self._generation}{checkpoint_store.NEW}"
        guests = []
        for guest in sorted(path for path in place.iterdir() if path.is_dir()):
            facts = files.read_json(guest / "facts.json")
            digest = checkpoint_store.digest_of(guest / checkpoint_store.FILES)
            guests.append({"rank": facts["rank"], "name": guest.name, "digest": digest})
        wanted = sorted(spec.rank for part in plan.node_parts for spec in part.guests)
        if sorted(guest["rank"] for guest in guests) != wanted:
            raise VTorqueError(f"a checkpoint of job {self._job.job_id}", "not all of its guests are in it")
        return {
            "version": checkpoint_store.VERSION,
            "job_id": self._job.job_id,
            "generation": self._generation,
            "made": round(time.time(), 3),
            "plan": plan.to_json(),
            "guests": guests,
        }
