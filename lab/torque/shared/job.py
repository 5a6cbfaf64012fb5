# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job as the server keeps it and hands it to a MOM."""

from __future__ import annotations

import dataclasses
import typing as t

QUEUED, HELD, RUNNING, SUSPENDED, COMPLETE = "Q", "H", "R", "S", "C"

Slots = list[tuple[str, list[int]]]


@dataclasses.dataclass
class Job:
    """Everything about one job.

    Attributes:
        id: `12.fe`, of an array `12[].fe`, of its members `12[1].fe`.
        asked: resources as the user named them; `resources` as Resource_List shows them.
        hosts: the entries of exec_host: host and slots, mother superior first; empty while it waits.
        holds: letters of u, o, s.
        forward_x11: what may use the display of a `qsub -X`: `protocol:data:screen`.
        interactive: socket, terminal and command of a `qsub -I`.
        array: the request text (`1-2`) of an array's parent; `index` is a member's.
    """

    id: str
    seq: int
    name: str
    user: str
    uid: int
    group: str
    submit_host: str
    server: str
    queue: str
    script: str
    asked: dict[str, str]
    resources: dict[str, str]
    variables: dict[str, str]
    submit_args: str
    error_path: str
    output_path: str
    init_work_dir: str
    ctime: int
    rank: int
    account: str = ""
    arguments: str = ""
    array: str = ""
    index: int | None = None
    comment: str = ""
    comp_time: int = 0
    deleting: bool = False
    etime: int = 0
    exclusive: bool = False
    exit_status: int | None = None
    forward_x11: str = ""
    group_list: str = ""
    holds: str = ""
    hosts: Slots = dataclasses.field(default_factory=list)
    interactive: dict[str, t.Any] | None = None
    jobtype: str = ""
    join: str = "n"
    keep: str = "n"
    mail_points: str = "a"
    mail_users: str = ""
    mtime: int = 0
    priority: int = 0
    qtime: int = 0
    rerunable: bool = True
    session_id: int = 0
    shell: str = ""
    started: float = 0.0
    start_count: int = 0
    state: str = QUEUED
    substate: int = 10
    umask: int | None = None
    used: dict[str, str] = dataclasses.field(default_factory=dict)
    run_seconds: float = 0.0
    x: str = ""

    @property
    def hashname(self) -> str:
        """The name of its files: `12.fe`, of an array's member `12-1.fe`."""
        return self.id if self.index is None else f"{self.seq}-{self.index}.{self.server}"

    @property
    def exec_host(self) -> str:
        """As qstat shows it: `cn2/0-1+cn1/0-1`."""
        return "+".join(f"{host}/{fold_slots(slots)}" for host, slots in self.hosts)

    @property
    def names(self) -> list[str]:
        """Its hosts, each once, however often exec_host names it: hooks run once a host."""
        return list(dict.fromkeys(host for host, _slots in self.hosts))

    @property
    def owner(self) -> str:
        """`alice@fe`."""
        return f"{self.user}@{self.submit_host}"

    def to_json(self) -> dict[str, t.Any]:
        """For the wire and for the disk."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, t.Any]) -> Job:
        """The other way."""
        return cls(**{**data, "hosts": [(host, slots) for host, slots in data["hosts"]]})


def fold_slots(slots: t.Sequence[int]) -> str:
    """`0-1,3` for 0, 1, 3."""
    ranges: list[list[int]] = []
    for slot in slots:
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_array(text: str) -> tuple[list[int], int | None]:
    """Indices and slot limit of `-t`: `1-3,7%2`.

    Raises:
        ValueError: it is no array request.
    """
    text, _percent, limit = text.partition("%")
    indices: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers = range(int(first), int(last if dash else first) + 1)
        if not numbers:
            raise ValueError(part)
        indices.update(numbers)
    return sorted(indices), int(limit) if limit else None
