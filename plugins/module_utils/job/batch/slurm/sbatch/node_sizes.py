# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user asks of sbatch and no partition has.

sbatch 22.05 refuses some of it, and takes the rest for a job that waits for ever, with the reason PartitionConfig
(tried: `-N3` and `-n8` on two nodes of two processors, `-N2 -c3`).
"""

from __future__ import annotations

import re
import typing as t

from .....errors import UserFault
from .....text import format_mib
from ....request.value_types import KeyFault, format_value

if t.TYPE_CHECKING:
    from ....request.demand import NodeSize

MIB_OF = {"K": 1 / 1024, "M": 1, "": 1, "G": 1024, "T": 1024 * 1024}
UNCERTAIN = frozenset({"overcommit", "nodelist", "nodefile", "reservation", "clusters"})
"""Options with which other nodes, or other rules, may count."""


BY_NAME = frozenset({"nodelist", "nodefile"})


def object_to_sizes(options: t.Mapping[str, str], known: t.Sequence[NodeSize]) -> t.Iterator[KeyFault]:
    """Sizes that no partition of those asked for has; where it has one with each but not with all, sbatch decides.

    Args:
        options: of sbatch, by their long names.
        known: a size for each node, by the name of its partition.
    """
    partitions: dict[str, list[NodeSize]] = {}
    for node in known:
        partitions.setdefault(node.name, []).append(node)
    if not partitions or UNCERTAIN.intersection(options):
        return
    which = "partition " + " or ".join(sorted(partitions))
    tasks, each = _number(options, "ntasks"), _number(options, "cpus-per-task") or 1
    per_node = "tasks-per-node" if "tasks-per-node" in options else "ntasks-per-node"
    a_node = (_number(options, per_node) or 1) * each
    most = max(node.cores for node in known)
    if a_node > most:
        name = per_node if a_node > each else "cpus-per-task"
        why = f"{a_node} processors on a node are more than any node of {which} has ({most})"
        yield KeyFault(f"--{name}", format_value(options[name]), why)
    memory, most_mib = _mib(options.get("mem", "")), max(node.mem_mib for node in known)
    if memory > most_mib:
        why = f"more than any node of {which} has ({format_mib(most_mib)})"
        yield KeyFault("--mem", format_value(options["mem"]), why)
    wanted, there = _number(options, "nodes"), max(map(len, partitions.values()))
    if wanted > there:
        yield KeyFault("--nodes", format_value(options["nodes"]), f"more nodes than {which} has ({there})")
    total = max(sum(node.cores for node in nodes) for nodes in partitions.values())
    if a_node <= most and tasks * each > total:
        why = f"{tasks * each} processors are more than all nodes of {which} have ({total}, at most {most} a node)"
        yield KeyFault("--ntasks", format_value(options["ntasks"]), why)


def with_spare(options: t.Mapping[str, str], spare: int) -> tuple[str, ...]:
    """Return the option by which a job gets so many nodes more than its user asks for.

    Args:
        options: of sbatch, by their long names.
        spare: how many; at least one.

    Raises:
        UserFault: any node could not take the place of any other, or nobody knows how many the job is to use.
    """
    named = sorted(BY_NAME.intersection(options))
    nodes = options.get("nodes", "" if "ntasks" in options else "1").strip()
    if named:
        why = "a spare node takes the place of any other, and the job asks for hosts by name"
        raise UserFault(f"spare={spare}", why, f"leave --{named[0]} or spare out")
    if "ntasks" in options or not re.fullmatch("[1-9][0-9]{0,5}", nodes):
        why = "the tasks of the job would be spread over the spare nodes too, or their number is not known"
        raise UserFault(f"spare={spare}", why, "ask by -N NODES and --ntasks-per-node=M")
    return (f"--nodes={int(nodes) + spare}",)


def _number(options: t.Mapping[str, str], name: str) -> int:
    """The least number of an option, as `2` or `2-4` say it; 0: there is none, or one that is not read here."""
    parts = re.fullmatch(r"\s*([0-9]{1,9})(?:-[0-9]+)?\s*", options.get(name, ""))
    return int(parts[1]) if parts else 0


def _mib(text: str) -> int:
    parts = re.fullmatch(r"\s*([0-9]{1,12})([KMGT]?)B?\s*", text, re.IGNORECASE)
    return int(int(parts[1]) * MIB_OF[parts[2].upper()]) if parts else 0
