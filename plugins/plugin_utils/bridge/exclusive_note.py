# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A note on each node of a job whether the job has the node for itself; written when it begins, for its end.

alone.json      in the record's directory of each node: whether it was alone when the guests had learned of their job.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from ...module_utils.job.batch import exclusive
from ...module_utils.job.batch.registry import open_batch
from ...module_utils.state import layout
from ...module_utils.system import files
from ...module_utils.system.clock import Deadline
from ...module_utils.time_budget import EXCLUSIVE_ASK_S

if t.TYPE_CHECKING:
    from ...module_utils.job.config.parameters import Policy


def note_neighbours(job_id: str, start: int, policy: Policy, node: str, directory: pathlib.Path) -> None:
    """Note whether a job that begins has this node for itself.

    Args:
        job_id: of the job.
        start: its start_count.
        policy: the site's.
        node: this node.
        directory: of the record on this node.

    Raises:
        SiteFault: somebody who must know does not tell.
    """
    if policy.kill_user_processes_after_job:
        found = others(job_id, policy, node)
        files.write(directory / layout.ALONE, json.dumps({"job_id": job_id, "start": start, "others": found}))


def others(job_id: str, policy: Policy, node: str, timeout_s: float = EXCLUSIVE_ASK_S) -> tuple[str, ...]:
    """What else is on this node now (`alone.others`).

    Args:
        job_id: the job that should be alone.
        policy: the site's.
        node: this node.
        timeout_s: seconds for the batch system.

    Raises:
        SiteFault: somebody who must know does not tell.
    """
    batch = open_batch(policy, deadline=Deadline.after(timeout_s))
    return exclusive.others(batch, job_id, node, policy)
