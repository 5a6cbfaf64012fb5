# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's view of the compute nodes, and which of them a job gets."""

from __future__ import annotations

import dataclasses
import typing as t

from .errors import BAD_VALUE, RequestError
from .job import Job, Slots, fold_slots
from .show import Attribute


@dataclasses.dataclass
class Node:
    """One compute node.

    Attributes:
        connected: its MOM is there.
        fault: the MOM's message after a failed hook; while it stands the node is down (down_on_error).
        taken: slot number -> job id.
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
    taken: dict[int, str] = dataclasses.field(default_factory=dict)
    exclusive: str = ""
    status: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """May a job start here?"""
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
        by_job: dict[str, list[int]] = {}
        for slot in sorted(self.taken):
            by_job.setdefault(self.taken[slot], []).append(slot)
        return ",".join(f"{fold_slots(slots)}/{job}" for job, slots in by_job.items())

    def attributes(self) -> list[Attribute]:
        """As `pbsnodes` shows the node."""
        shown = [
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
        return [(name, "", value) for name, value in shown if value]

    def free(self, job_id: str) -> None:
        """Take a job off the node."""
        self.taken = {slot: job for slot, job in self.taken.items() if job != job_id}
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
        words = text.split(":")
        count, ppn, host, wanted = 1, 1, "", []
        for place, word in enumerate(words):
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
        """Are there nodes enough when all of them are free?"""
        empty = Nodes(Node(node.name, node.np, node.properties, connected=True) for node in self.by_name.values())
        return empty.place(spec, exclusive=False) is not None

    def place(self, spec: str, exclusive: bool) -> Slots | None:
        """Hosts and slots for a job, mother superior first, or None when it must wait.

        Of several nodes asked for by number the last one found leads, as recorded (`2:ppn=2`: t2/0-1+t1/0-1).
        """
        chosen: dict[str, list[int]] = {}
        for part in self.parts(spec):
            found: Slots = []
            for node in self.by_name.values():
                if len(found) == part.count:
                    break
                if self._fits(node, part, exclusive, chosen):
                    found.append((node.name, node.free_slots()[: part.ppn]))
            if len(found) < part.count:
                return None
            chosen.update(reversed(found))
        return list(chosen.items())

    @staticmethod
    def _fits(node: Node, part: Part, exclusive: bool, chosen: t.Container[str]) -> bool:
        if not node.usable or node.name in chosen or (part.host and node.name != part.host):
            return False
        if exclusive and node.taken:
            return False
        return set(part.properties) <= set(node.properties) and len(node.free_slots()) >= part.ppn

    def take(self, job: Job) -> None:
        """Give the job its slots."""
        for host, slots in job.hosts:
            node = self.by_name[host]
            node.taken.update(dict.fromkeys(slots, job.id))
            if job.exclusive:
                node.exclusive = job.id

    def free(self, job: Job) -> None:
        """Take the job off every node."""
        for host, _slots in job.hosts:
            if host in self.by_name:
                self.by_name[host].free(job.id)
