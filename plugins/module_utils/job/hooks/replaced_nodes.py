# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A start went well on a spare node of the job: what becomes of the node that failed, as if the start had failed."""

from __future__ import annotations

import os
import typing as t

from ...errors import SiteFault, VTorqueError, error_from_dict
from ...state import event_log, layout
from ...system import files
from ...system.clock import Deadline
from ...time_budget import VERDICT_CALL_S
from ..batch.api import BatchJob, BatchSystem
from ..batch.registry import open_batch
from ..config.parameters import Policy
from ..verdict.decide import judge_replaced, names_node
from ..verdict.enforce import enforce
from . import playbook
from .start import Start


class Alarm(t.NamedTuple):
    """What an administrator is to hear.

    Attributes:
        text: what happened; "": nothing.
        grave: whether the administrator must act now.
    """

    text: str = ""
    grave: bool = False


def blame_replaced(start: Start, job: BatchJob, policy: Policy, *, until: float, uid: int | None) -> Alarm:
    """Set nodes offline that proved a fault while others took their places, and write it into the job's log.

    Args:
        start: which went well.
        job: the batch server's word.
        policy: the site's.
        until: when the hook's own work was to be done, in seconds of the monotonic clock.
        uid: of the job's owner, who may read its log.
    """
    found = sorted(start.directory.glob(layout.StepFile.REPLACED.pattern))
    if not found:
        return Alarm()
    deadline = Deadline.after(playbook.verdict_time_s(until))
    batch = open_batch(policy, timeout_s=VERDICT_CALL_S, deadline=deadline)
    here, lines, loud, grave = os.uname().nodename, [], False, False
    for path in found:
        node = layout.StepFile.REPLACED.name_of(path.name)
        try:
            data = files.read_json(path)
            error = error_from_dict(data)
            lines.append(f"{node} failed, {data['by']} has taken its place: {error}")
            nodes = _nodes(batch) if names_node(error) else None
            verdict = judge_replaced(error, job=job, nodes=nodes, policy=policy, node=here)
            enforced = enforce(verdict, batch, job.job_id)
        except (VTorqueError, OSError, KeyError) as trouble:
            lines.append(f"nothing is done about {node}: {trouble}")
            loud = True
            continue
        lines += [*verdict.lines, *enforced.failed]
        lines += [f"{enforced.offline} is set offline: {verdict.note}"] if enforced.offline else []
        loud = loud or bool(verdict.lines or enforced.failed or enforced.offline)
        grave = grave or verdict.grave or bool(enforced.failed)
    with start.open_any_log(uid) as log:
        for line in lines:
            playbook.note(log, line, event_log.WARNING, "verdict")
    return Alarm(f"job {start.job_id}, start {start.number}: {'; '.join(lines)}" if loud else "", grave)


def _nodes(batch: BatchSystem) -> t.Any:
    try:
        return batch.nodes()
    except SiteFault:
        return None
