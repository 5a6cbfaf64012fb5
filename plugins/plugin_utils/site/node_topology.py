# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute nodes asked by `vtorque-node` what they have, and what guests of jobs have of it."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import typing as t

from ...module_utils.errors import NodeFault, VTorqueError
from ...module_utils.job.batch.host_match import same_host
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.doctor.node_checks import SSH, last_line, ssh_call
from ...module_utils.text import printable
from ...module_utils.wire.node_command import program_path
from ...module_utils.wire.node_topology import NodeTopology, TopologyRequest, topology_from_dict
from ..bridge.node_settings import host_name
from ..bridge.upkeep import examine

ANSWER_S = 20.0
"""Seconds that a node has, once it is reached: libvirt is asked, and each listed device."""


def is_here(node: str) -> bool:
    """Return whether a name is this host's own."""
    return same_host(node, host_name())


def query_node(node: str, policy: Policy, ssh: str = SSH) -> NodeTopology:
    """Return what a node says that it has.

    Args:
        node: its name, as the batch server has it.
        policy: the site's.
        ssh: the program.

    Raises:
        NodeFault: it gives no answer, or one of another form.
    """
    what = f"the topology of {printable(node)[:80]}"
    timeout_s = float(policy.ssh_timeout)
    command = [*ssh_call(node, timeout_s, ssh), str(program_path(examine.PROGRAM, policy.prefix_nodes))]
    question = json.dumps(TopologyRequest().to_dict()).encode() + b"\n"
    try:
        done = examine.call(command, question, timeout_s + ANSWER_S)
    except subprocess.TimeoutExpired:
        raise NodeFault(what, f"no answer in {timeout_s + ANSWER_S:.0f} s", "vmgr doctor --node says more") from None
    except (OSError, VTorqueError) as error:
        raise NodeFault(what, str(error)) from error
    if done.returncode == 255:
        raise NodeFault(what, f"no answer by ssh: {last_line(done.stderr, done.returncode)}", examine.WAY_IN)
    try:
        answer = json.loads(done.stdout)
    except (ValueError, RecursionError):
        raise NodeFault(what, f"no answer: {last_line(done.stderr, done.returncode)}", examine.INSTALL) from None
    if not isinstance(answer, dict) or "topology" not in answer:
        raise NodeFault(what, f"it gave none: {examine.refusal_of(answer)}", examine.INSTALL)
    found = topology_from_dict(answer["topology"])
    if not same_host(found.node, node):
        raise NodeFault(what, f"{found.node} has answered", "see the name of that host in /etc/hosts or the DNS")
    return found


def query_nodes(
    nodes: t.Sequence[str], policy: Policy, advance: t.Callable[[str], None] = lambda _node: None, ssh: str = SSH
) -> tuple[NodeTopology | VTorqueError, ...]:
    """Return what each of these nodes says, or why it says nothing, in their order.

    Args:
        nodes: their names.
        policy: the site's.
        advance: hears of each that has answered.
        ssh: the program.
    """

    def one(node: str) -> NodeTopology | VTorqueError:
        try:
            return query_node(node, policy, ssh)
        except VTorqueError as error:
            return error
        finally:
            advance(node)

    with concurrent.futures.ThreadPoolExecutor(examine.AT_ONCE) as pool:
        return tuple(pool.map(one, nodes))
