# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes and sizes that a job asks for: read, held against the site's nodes, and raised to what its guests need."""

from __future__ import annotations

import dataclasses
import typing as t

from .....errors import UserFault
from .....text import format_mib
from ....request.demand import parse_batch_memory
from ....request.value_types import KeyFault, format_value
from .arguments import NodeChunk, read_nodes
from .options import Options

if t.TYPE_CHECKING:
    from ....config.parameters import Policy
    from ....request.demand import Demand, NodeSize


def read_node_request(asked: Options, faults: list[KeyFault]) -> tuple[NodeChunk, ...]:
    """The node request, `1` when there is none."""
    found = asked.resource("nodes")
    if found is None:
        return (NodeChunk(1, "", (), 0),)
    chunks = read_nodes(found[0])
    if chunks is None:
        faults.append(KeyFault("-l nodes", format_value(found[0]), "allowed: a number or a host, and :ppn=N", found[1]))
        return (NodeChunk(1, "", (), 0),)
    return chunks


def count_hosts(nodes: tuple[NodeChunk, ...]) -> int:
    """How many hosts these are at most; one that is named twice is one."""
    return sum(chunk.count for chunk in nodes if not chunk.host) + len({chunk.host for chunk in nodes if chunk.host})


def _parts(nodes: tuple[NodeChunk, ...], chunk: NodeChunk) -> tuple[NodeChunk, ...]:
    """All that is asked of the hosts of this part; of a host that is named twice Torque takes the sum."""
    return tuple(other for other in nodes if other.host == chunk.host) if chunk.host else (chunk,)


def _cores(parts: tuple[NodeChunk, ...]) -> int:
    """Their sum on each host; 0: nothing is said."""
    return parts[0].ppn if len(parts) == 1 else sum(max(part.ppn, 1) for part in parts)


def object_to_sizes(asked: Options, nodes: tuple[NodeChunk, ...], known: t.Sequence[NodeSize]) -> t.Iterator[KeyFault]:
    """Sizes that the user gave, against the biggest node."""
    most = max((size.cores for size in known), default=0)
    found = asked.resource("nodes")
    ppn = max(_cores(_parts(nodes, chunk)) for chunk in nodes)
    if known and ppn > most:
        yield KeyFault("ppn", str(ppn), f"more than any node of this site has ({most})", found[1] if found else "")
    memory, hosts = asked.resource("mem"), count_hosts(nodes)
    most = max((size.mem_mib for size in known), default=0) * hosts
    if memory and most and (parse_batch_memory(memory[0]) or 0) > most:
        whose = f"{hosts} nodes of this site have together" if hosts > 1 else "any node of this site has"
        yield KeyFault("mem", format_value(memory[0]), f"more than {whose} ({format_mib(most)})", memory[1])


def raise_sizes(
    asked: Options, nodes: tuple[NodeChunk, ...], need: Demand, policy: Policy
) -> tuple[Options, tuple[str, ...]]:
    """Add what is absent, raise what is too small, say what was raised; with the spare nodes behind the job's own.

    Raises:
        UserFault: spare nodes are wanted, and the node request is none of which there could be more.
    """
    small = sorted({cores for chunk in nodes if 0 < (cores := _cores(_parts(nodes, chunk))) < need.cores})
    notices = [f"ppn raised from {ppn} to {need.cores} ({need.cores_sum})" for ppn in small]
    wanted = tuple(_fit(chunk, _parts(nodes, chunk), need, policy) for chunk in nodes)
    if need.spare:
        wanted = _with_spare(wanted, need.spare)
    if wanted != nodes or asked.resource("nodes") is None:
        asked = asked.raised("nodes", "+".join(map(str, wanted)))
    hosts = count_hosts(wanted)
    memory = asked.resource("mem")
    mib = parse_batch_memory(memory[0]) if memory else 0
    if mib is not None and mib < need.mem_mib * hosts:  # Torque's is that of the whole job
        asked = asked.raised("mem", f"{need.mem_mib * hosts}mb")
        if memory:
            spare = f", {need.spare} of them spare" if need.spare else ""
            each = f", on each of {hosts} nodes{spare}" if hosts > 1 else ""
            notices.append(f"mem raised from {memory[0]} to {need.mem_mib * hosts}mb ({need.mem_sum}{each})")
    return asked, tuple(notices)


def _with_spare(wanted: tuple[NodeChunk, ...], spare: int) -> tuple[NodeChunk, ...]:
    """The node request with so many nodes more: any of them may take the place of any other, so that all are alike.

    Raises:
        UserFault: they are not.
    """
    if len(wanted) != 1 or wanted[0].host:
        why = "a spare node takes the place of any other, and the job asks for hosts by name, or for several kinds"
        raise UserFault(f"spare={spare}", why, "ask by -l nodes=N:ppn=M, or leave spare out")
    return (dataclasses.replace(wanted[0], count=wanted[0].count + spare),)


def _fit(chunk: NodeChunk, parts: tuple[NodeChunk, ...], need: Demand, policy: Policy) -> NodeChunk:
    """A part of the node request with the property that each of its nodes must have, and the cores.

    What a host lacks that several parts name, the first of them gets.
    """
    if parts[0] is chunk:
        others = sum(max(part.ppn, 1) for part in parts[1:])
        chunk = dataclasses.replace(chunk, ppn=max(chunk.ppn, need.cores - others))
    if not policy.vm_node_property or policy.vm_node_property in chunk.properties:
        return chunk
    return dataclasses.replace(chunk, properties=(*chunk.properties, policy.vm_node_property))
