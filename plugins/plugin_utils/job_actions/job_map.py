# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every host of a job learns of the others, from the plan and from what the nodes have made."""

from __future__ import annotations

import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.job.plan.job_plan import JobPlan
from ...module_utils.wire import messages
from ...module_utils.wire.messages import JobHost, JobMap
from ...module_utils.wire.node_answers import BareHost, GuestFacts


@leaves_nothing
def hosts_of(
    plan: JobPlan, guests: t.Mapping[str, t.Sequence[GuestFacts]], bare: t.Mapping[str, BareHost]
) -> tuple[JobHost, ...]:
    """The hosts of a job, as all of them are told: its guests by rank, then its bare hosts in the job's order of nodes.

    Args:
        plan: what was asked for.
        guests: what was made, by node.
        bare: what the hosts that stay bare say of themselves, by node.
    """
    asked = {spec.rank: spec for part in plan.node_parts for spec in part.guests}
    made = sorted((facts for some in guests.values() for facts in some), key=lambda facts: facts.rank)
    return tuple(
        JobHost(
            facts.name,
            facts.address,
            asked[facts.rank].vcpus,
            _plain(asked[facts.rank].host_key.public),
            gpus=asked[facts.rank].gpus,
            networks=facts.networks,
        )
        for facts in made
    ) + tuple(
        JobHost(name, bare[name].address, slots, _plain(bare[name].host_key), bare=True)
        for name, slots in plan.bare.items()
    )


@leaves_nothing
def build_job_map(plan: JobPlan, hosts: tuple[JobHost, ...], node: str, timeout_s: float) -> JobMap:
    """The map of a job for one node.

    Args:
        plan: what was asked for.
        hosts: of the job, from `hosts_of`.
        node: who is told.
        timeout_s: seconds that the node has for it.
    """
    return JobMap(messages.VERSION, "join", plan.job_id, plan.start, node, timeout_s, hosts, plan.job_key)


def _plain(key: str) -> str:
    """Without its comment."""
    return " ".join(key.split()[:2])
