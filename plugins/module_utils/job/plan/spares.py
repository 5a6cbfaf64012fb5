# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that fails in a start, and the spare node of the job that takes its place in the same start.

The guests stay what they are, with their ranks and keys: only where they are made changes.  The node that failed keeps
a part without guests, so that it is cleaned at the end as all others are.
"""

from __future__ import annotations

import dataclasses

from .job_plan import IdleNode, JobPlan


def may_lose(plan: JobPlan, node: str) -> bool:
    """Return whether another node can take the place of this one: there is a spare one, and guests may move away.

    Args:
        plan: of the start, as it is now.
        node: that failed.
    """
    # who leads the job also has its checkpoints taken, which needs the watch over guests of its own
    leads_alone = node == plan.mother_superior and plan.parts[node].checkpoint_min >= 0
    return bool(plan.spares) and not leads_alone


def replace_node(plan: JobPlan, node: str) -> tuple[JobPlan, str]:
    """Return the plan with the first spare node in the place of another, and which one that is.

    Args:
        plan: of the start; it has a spare node.
        node: that failed, and had guests.
    """
    by = plan.spares[0]
    failed = next(part for part in plan.node_parts if part.node == node)
    moved = {
        by: dataclasses.replace(failed, node=by),
        node: dataclasses.replace(failed, guests=()),
    }
    parts = tuple(moved.get(part.node, part) for part in plan.node_parts)
    idle = (*(one for one in plan.idle if one.node != by), IdleNode(node, failed=True))
    changed = dataclasses.replace(plan, node_parts=parts, idle=idle)
    return JobPlan.from_json(changed.to_json()), by
