# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's view of the compute nodes, and which of them a job gets."""

from __future__ import annotations

import dataclasses
import typing as t

from ..shared.errors import BAD_VALUE, RequestError
from ..shared.job import Job, Slots, fold_slots
from ..shared.show import Attribute


@dataclasses.dataclass
class Node:
    """One compute node.

    Attributes:
        connected: its MOM is there.
        fault: the MOM's message after a failed hook; while it stands the node is down (down_on_error).
        usages: the slots of each job; a job that is resumed has its own again, whoever has them (set_one_old).
        exclusive: the job that has the node for itself.
        status: what the MOM tells of its machine.
    """

    name: str
    np: int
    properties: tuple[str, ...] = ()
    connected: bool = False
    offline: bool = False
    fault: str = ""
    note: str = ""
    usages: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    exclusive: str = ""
    status: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def taken(self) -> set[int]:
        """The numbers of all slots with a job."""
        return {slot for slots in self.usages.values() for slot in slots}

    @property
    def usable(self) -> bool:
        """Return whether a job may start here."""
        return self.connected and not self.offline and not self.fault and not self.exclusive

    @property
    def states(self) -> list[str]:
        """`free`, or all that speaks against it."""
        states = [] if self.connected and not self.fault else ["down"]
        states += ["offline"] if self.offline else []
        states += ["job-exclusive"] if self.exclusive or len(self.taken) >= self.np else []
        return states or ["free"]

    def free_slots(self) -> list[int]:
        """Slots without a job, lowest first."""
        return [slot for slot in range(self.np) if slot not in self.taken]

    def jobs(self) -> str:
        """`0/12[1].fe,1/12[2].fe`."""
        by_job = sorted(self.usages.items(), key=lambda usage: min(usage[1]))
        return ",".join(f"{fold_slots(slots)}/{job}" for job, slots in by_job)

    def attributes(self) -> list[Attribute]:
        """As `pbsnodes` shows the node."""
        printed = [
            ("state", ",".join(self.states)),
            ("power_state", "Running"),
            ("np", str(self.np)),
            ("properties", ",".join(self.properties)),
            ("ntype", "cluster"),
            ("jobs", self.jobs()),
            ("status", ",".join(f"{key}={value}" for key, value in self.status.items())),
            ("note", self.note),
            ("mom_service_port", "15002"),
            ("mom_manager_port", "15003"),
        ]
        return [(name, "", value) for name, value in printed if value]

    def free(self, job_id: str) -> None:
        """Take a job off the node."""
        self.usages.pop(job_id, None)
        if self.exclusive == job_id:
            self.exclusive = ""


@dataclasses.dataclass(frozen=True)
class Part:
    """One `+` separated part of `-l nodes=`."""

    count: int
    ppn: int
    host: str
    properties: tuple[str, ...]


def parse_nodes(spec: str, hosts: t.Container[str], properties: t.Container[str]) -> tuple[Part, ...]:
    """The parts of a nodes specification.

    Raises:
        RequestError: a word is neither a number, `ppn=`, a host nor a property.
    """
    parts = []
    for text in spec.split("+"):
        fields = text.split(":")
        count, ppn, host, wanted = 1, 1, "", []
        for place, word in enumerate(fields):
            if place == 0 and word.isdigit():
                count = int(word)
            elif place == 0 and word in hosts:
                host = word
            elif word.startswith("ppn=") and word[4:].isdigit():
                ppn = int(word[4:])
            elif word in properties:
                wanted.append(word)
            else:
                raise RequestError(BAD_VALUE, "Resource_List.nodes")
        if count < 1 or ppn < 1:
            raise RequestError(BAD_VALUE, "Resource_List.nodes")
        parts.append(Part(count, ppn, host, tuple(wanted)))
    return tuple(parts)


class Nodes:
    """All nodes, in the order of the server's list."""

    def __init__(self, nodes: t.Iterable[Node]) -> None:
        self.by_name = {node.name: node for node in nodes}

    def parts(self, spec: str) -> tuple[Part, ...]:
        """Parse a specification against these nodes."""
        return parse_nodes(spec, self.by_name, {word for node in self.by_name.values() for word in node.properties})

    def could_ever(self, spec: str) -> bool:
        """Return whether there are enough nodes when all of them are free."""
        empty = Nodes(Node(node.name, node.np, node.properties, connected=True) for node in self.by_name.values())
        return empty.place(spec, exclusive=False) is not None

    def place(self, spec: str, exclusive: bool) -> Slots | None:
        """Entries of exec_host for a job, mother superior first, or None when it must wait.

        After the sources of 6.1.3 (node_manager.c: node_spec, select_nodes_using_hostlist, select_from_all_nodes,
        save_node_for_adding): a node that is named again gets an entry of its own, those of the node that is named
        first stand in front, and a specification may ask for no more nodes than there are, repeats included.  Of nodes
        asked for by number the last one found leads, as recorded (`2:ppn=2`: t2/0-1+t1/0-1).
        """
        parts = self.parts(spec)
        if sum(part.count for part in parts) > len(self.by_name):
            return None
        first = parts[0].host
        chosen: list[tuple[str, int]] = []
        for node, part in self._offers(parts, exclusive, chosen):
            chosen.insert(0 if first in ("", node.name) else len(chosen), (node.name, part.ppn))
        if len(chosen) < sum(part.count for part in parts):
            return None
        free = {name: self.by_name[name].free_slots() for name, _ppn in chosen}
        return [(name, [free[name].pop(0) for _slot in range(ppn)]) for name, ppn in chosen]

    def _offers(
        self, parts: tuple[Part, ...], exclusive: bool, chosen: list[tuple[str, int]]
    ) -> t.Iterator[tuple[Node, Part]]:
        """The nodes that fit, in the order in which Torque finds them; the caller notes each in `chosen`."""
        if all(part.host for part in parts[:2]):
            for part in parts:  # a list of hosts
                if part.host and self._fits(self.by_name[part.host], part, exclusive, chosen):
                    yield self.by_name[part.host], part
            return
        wanted = [part.count for part in parts]
        for node in self.by_name.values():
            for place, part in enumerate(parts):
                if wanted[place] and self._fits(node, part, exclusive, chosen):
                    wanted[place] -= 1
                    yield node, part

    @staticmethod
    def _fits(node: Node, part: Part, exclusive: bool, chosen: list[tuple[str, int]]) -> bool:
        if not node.usable or (part.host and node.name != part.host) or (exclusive and node.taken):
            return False
        spoken_for = sum(ppn for name, ppn in chosen if name == node.name)
        return set(part.properties) <= set(node.properties) and len(node.free_slots()) >= spoken_for + part.ppn

    def take(self, job: Job) -> None:
        """Give the job its slots."""
        for host, slots in job.hosts:
            node = self.by_name[host]
            node.usages[job.id] = sorted({*node.usages.get(job.id, ()), *slots})
            if job.exclusive:
                node.exclusive = job.id

    def free(self, job: Job) -> None:
        """Take the job off every node."""
        for host, _slots in job.hosts:
            if host in self.by_name:
                self.by_name[host].free(job.id)
