# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compute nodes of the site, as its batch server names them."""

from __future__ import annotations

from ...module_utils.errors import UserFault, VTorqueError
from ...module_utils.job.batch.registry import open_batch, open_node
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.request.host_expressions import host_matches
from ...module_utils.wire.node_command import program_path
from ..bridge.node_settings import LoadPolicy, host_name

BATCH_S = 10.0


def list_nodes(policy: Policy) -> tuple[str, ...]:
    """Return the names of all compute nodes.

    Args:
        policy: the site's.

    Raises:
        UserFault: there is none.
        SiteFault: the batch server does not tell of its nodes.
    """
    front_end = host_matches(policy.regex_fe, host_name())
    nodes = tuple(node.name for node in open_batch(policy, front_end=front_end, timeout_s=BATCH_S).nodes())
    if not nodes:
        raise UserFault("no node", "is known to the batch system")
    return nodes


def is_compute_node(load: LoadPolicy) -> bool:
    """Return whether jobs get their guests on this host.

    The batch system alone does not say so: what it has on nodes may be on every host, front ends too.

    Args:
        load: gives the site's policy.
    """
    try:
        policy = load()
    except VTorqueError:  # which is what a compute node would find
        policy = Policy()
    sweep = program_path("vtorque-sweep", policy.prefix_nodes)
    return open_node(policy.batch_system).is_node(policy) and sweep.exists()
