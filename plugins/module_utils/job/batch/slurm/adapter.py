# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's controller, asked by its commands; what users write is never looked through.

`--json` quotes what users write; `scontrol show job` prints a job's name and comment as they are, line feeds and all,
so that either forges any of its fields (recorded on Slurm 22.05.8 and 24.11.5: tests/fixtures/slurm).
"""

from __future__ import annotations

import contextlib
import math
import pathlib
import re
import typing as t

from ....effects import leaves_nothing
from ....errors import SiteFault
from ....system.clock import Deadline
from ....wire.messages import HOST_NAME
from ..api import (
    CHECKPOINT_SIGNAL,
    GIVEN_UP,
    NOTE_PREFIX,
    PARK_SIGNAL,
    SUSPENDED,
    WANTED,
    BatchJob,
    BatchNode,
    ServerSettings,
    UnknownJob,
)
from ..host_match import find_node
from ..shared import node_note
from ..shared.server_command import CommandRefused
from . import commands, ids, output_file
from .answers import STATES, parse_jobs, parse_nodes, read_job
from .questions import one_job, partitions

if t.TYPE_CHECKING:
    from ...request.demand import NodeSize
    from ..api import BatchSystem

AGAIN_AFTER_S = 30
"""Seconds until a job that is queued again may start.  Where that is over when its Epilog has ended, Slurm makes it two
minutes from then; and a start in the second of the former one's end fails, because slurmd takes it for that one
(measured on 22.05.8).  So it is longer than what a hook and an Epilog still do."""

NO_LIMIT_S = 365 * 24 * 3600
"""What Slurm gives a job without a limit that its backfill has started (seen on 22.05.8); no limit is longer."""
MOST_MINUTES = 60
"""More than any start takes is not given back."""


class Slurm:
    """Slurm 22.05 and newer.

    Args:
        tools: the directory with squeue, sinfo, scontrol and scancel; Prolog has no PATH.
        timeout_s: seconds that any one command may take.
        deadline: when all of them must be done, if there is such a moment; after it nothing is asked any more.
    """

    def __init__(self, tools: pathlib.Path, *, timeout_s: float = 10.0, deadline: Deadline | None = None) -> None:
        self.tools = tools
        self.timeout_s = timeout_s
        self.deadline = deadline
        self._names: dict[str, str] = {}
        self._outputs: dict[str, str] = {}

    @leaves_nothing
    def job(self, job_id: str) -> BatchJob:
        """The job as the controller sees it now; see `BatchSystem.job`."""
        name = self._name(job_id)
        row = one_job.pick(self._query_jobs(one_job.FACTS, name, job_id), JobID=ids.number_of(job_id))
        detail = self._run(*one_job.question_of_detail(row, name), subject=job_id).decode(errors="replace")
        known = read_job(one_job.form_of(row, detail), job_id)
        self._outputs[job_id] = known.output
        return known.job

    def _query_jobs(self, columns: one_job.Columns, name: str, job_id: str) -> list[one_job.Row]:
        """Ask for one job; an array's number also means its members."""
        return one_job.read_rows(self._run(*one_job.question(columns, name), subject=job_id), columns)

    def _name(self, job_id: str) -> str:
        """Return by which name an order means this job alone (`one_job.name_of`), which it has for all of its life.

        Raises:
            UnknownJob: the controller does not know the job.
            SiteFault: it does not tell.
        """
        if job_id not in self._names:
            number = ids.number_of(job_id)
            row = one_job.pick(self._query_jobs(one_job.WHO, number, job_id), JobID=number)
            if one_job.id_of(row) != job_id:
                raise UnknownJob(f"job {job_id}", f"Slurm speaks of {one_job.id_of(row)}")
            self._names[job_id] = one_job.name_of(row)
        return self._names[job_id]

    def all_jobs(self) -> tuple[BatchJob, ...]:
        """All jobs that the controller remembers; see `BatchSystem.all_jobs`."""
        # 24.11 lists no job that is over without `-t all`; 22.05 has them all with and without it
        return parse_jobs(self._run("squeue", "-a", "-t", "all", "--json"))

    @leaves_nothing
    def nodes(self) -> tuple[BatchNode, ...]:
        """All nodes, without the jobs on them, which Slurm knows by job (`jobs`)."""
        try:
            return parse_nodes(self._run("scontrol", "-a", "show", "nodes", "--json"))
        except CommandRefused as refused:
            if commands.NO_JSON not in str(refused):
                raise
        # scontrol writes JSON since 23.02, and since then sinfo does not list single nodes
        return parse_nodes(self._run("sinfo", "--json"), "sinfo")

    def node_sizes(self, queue: str, wanted: str | None) -> tuple[NodeSize, ...]:
        """Return the sizes of the nodes of partitions, by the name of the partition; see `BatchSystem.node_sizes`."""
        return partitions.read_sizes(self._run(*partitions.QUESTION).decode(errors="replace"), queue, wanted)

    def node(self, name: str) -> BatchNode:
        """One node, by its long or short name, in any case.

        Raises:
            SiteFault: Slurm knows none, or more than one, of that name.
        """
        _demand_node(name)
        return find_node(self.nodes(), name, "Slurm")

    def note(self, node: str) -> str:
        """The reason of a node that somebody drained, or ""."""
        return self.node(node).note

    def jobs(self, node: str) -> frozenset[str]:
        """The jobs that have processors of a node, in what users cannot write; an unknown state may be one of these."""
        _demand_node(node)
        try:
            answer = self._run(*one_job.question_of_node(node), subject=node)
        except CommandRefused:  # Slurm spells it otherwise
            answer = self._run(*one_job.question_of_node(self.node(node).name), subject=node)
        rows = one_job.read_rows(answer, one_job.WHO)
        return frozenset(one_job.id_of(row) for row in rows if STATES.get(row["State"], "R") in ("R", "S", "E"))

    def offline(self, node: str, note: str) -> BatchNode:
        """Drain a node, with our note for its reason; see `BatchSystem.offline`.

        Raises:
            SiteFault: see `BatchSystem.offline`.
        """

        def order(name: str, text: str) -> None:
            self._order("update", f"nodename={name}", "state=drain", f"reason={text}", subject=name)

        return node_note.set_offline(self, node, note, order, "scontrol")

    def clear(self, node: str, note: str) -> bool:
        """Take back `offline` with this very note; anything else is left alone, and False returned.

        Raises:
            SiteFault: see `BatchSystem.clear`.
        """

        def order(name: str) -> None:
            self._order("update", f"nodename={name}", "state=resume", subject=name)

        return node_note.clear(self, node, note, order, "scontrol")

    def hold(self, job_id: str) -> None:
        """`scontrol requeuehold` of a job that was started: its owner can release it.

        Raises:
            SiteFault: see `BatchSystem.hold`.
        """
        self._requeue("requeuehold", job_id)
        held = self.job(job_id)
        if "u" not in held.hold_types:
            raise SiteFault(
                f"job {job_id} is not held", f"scontrol requeuehold was asked to; its state is {held.state}"
            )

    def requeue(self, job_id: str) -> None:
        """`scontrol requeue`, without Slurm's own two minutes of waiting.

        Raises:
            SiteFault: see `BatchSystem.requeue`.
        """
        self._requeue("requeue", job_id)
        with contextlib.suppress(SiteFault):  # it is queued again all the same, only later
            again = f"StartTime=now+{AGAIN_AFTER_S}"
            self._order("update", f"jobid={self._name(job_id)}", again, subject=job_id)

    def _requeue(self, order: str, job_id: str) -> None:
        """Slurm would bring back a job that its owner has just cancelled."""
        state = self.job(job_id).state
        if state not in ("R", "S"):
            raise SiteFault(f"job {job_id} is not queued again", f"it does not run any more (state {state})")
        if state == "S":
            # Slurm gives a suspended job the priority 0, and a job that is queued again with it is held for good: only
            # an administrator could release it (seen on 22.05.8 and 24.11.5, with a bare job)
            self._order("resume", self._name(job_id), subject=job_id)
        self._order(order, self._name(job_id), subject=job_id)

    def notify_owner(self, job: BatchJob, lines: t.Sequence[str], *, held: bool) -> None:
        """In AdminComment, and in the output file of a batch job or on the terminal of another."""
        # a controller that is silent keeps nobody from the file
        with contextlib.suppress(SiteFault):
            if job.interactive:
                self._order("notify", self._name(job.job_id), output_file.one_line(lines), subject=job.job_id)
            elif not held:
                self.comment(job.job_id, lines[0])
        if not job.interactive:
            left_s = output_file.WRITE_S if self.deadline is None else self.deadline.left_s()
            output_file.append(job, self._outputs.get(job.job_id, ""), lines, timeout_s=left_s)

    def start_state(self, job_id: str, start: int) -> str:
        """Ask for what changes alone, every few seconds."""
        number = ids.number_of(job_id)
        try:
            row = one_job.pick(self._query_jobs(one_job.WHO, self._names.get(job_id, number), job_id), JobID=number)
        except UnknownJob:
            return GIVEN_UP
        except SiteFault:  # no proof
            return WANTED
        if not row["RestartCnt"].isdecimal():
            return WANTED
        if int(row["RestartCnt"]) + 1 != start:
            return GIVEN_UP
        return {"R": WANTED, "S": SUSPENDED}.get(STATES.get(row["State"], "R"), GIVEN_UP)

    def give_back_time(self, job: BatchJob, seconds: float) -> int:
        """`TimeLimit=+N`: Slurm counts Prolog, and its limits are whole minutes."""
        if not 0 < job.walltime_s < NO_LIMIT_S:
            return 0
        minutes = min(math.ceil(seconds / 60), MOST_MINUTES)
        self._order("update", f"jobid={self._name(job.job_id)}", f"TimeLimit=+{minutes}", subject=job.job_id)
        return minutes * 60

    def suspend(self, job_id: str) -> None:
        """`scontrol suspend`, which operators may.

        Raises:
            SiteFault: see `BatchSystem.suspend`.
        """
        self._order("suspend", self._name(job_id), subject=job_id)
        if (state := self.job(job_id).state) != "S":
            raise SiteFault(f"job {job_id} is not suspended", f"scontrol suspend was called; its state is {state}")

    def request_checkpoint(self, job_id: str, *, park: bool = False) -> None:
        """`scancel --batch --signal=60` or 61, which the owner may: real-time signals, sent to the job's shell alone.

        Raises:
            SiteFault: see `BatchSystem.request_checkpoint`.
        """
        number = PARK_SIGNAL if park else CHECKPOINT_SIGNAL
        self._run("scancel", "--batch", f"--signal={number}", self._name(job_id), subject=job_id)

    def park(self, job_id: str) -> None:
        """`scontrol requeuehold`, which does both at once.

        Raises:
            SiteFault: see `BatchSystem.park`.
        """
        self.hold(job_id)

    def delete(self, job_id: str) -> None:
        """`scancel`: the job's owner and operators may."""
        self._run("scancel", self._name(job_id), subject=job_id)

    def release_command(self, job_id: str) -> str:
        """`scontrol release`, which the owner of a job may call."""
        name = ids.number_of(job_id)
        with contextlib.suppress(SiteFault):  # nobody tells whether it is in an array
            name = self._name(job_id)
        return f"scontrol release {name}"

    def find_id(self, named: str) -> str:
        """A number, and for members `33_1`, `33[1]` or, of a set of jobs, `33+1`; Slurm knows its cluster's name.

        Raises:
            SiteFault: see `BatchSystem.find_id`.
        """
        name, wanted = ids.read_name(named)
        row = one_job.pick(self._query_jobs(one_job.WHO, name, named), **wanted)
        found = one_job.id_of(row)
        if "." in named and not named.endswith(f".{row['Cluster']}"):
            raise UnknownJob(f"job {named}", f"Slurm speaks of {found}")
        return found

    def display_id(self, job_id: str) -> str:
        """The number alone."""
        return ids.number_of(job_id)

    def server(self) -> ServerSettings:
        """Root of a node is an administrator of Slurm by munge, and everybody sees every job: nothing is to be set."""
        return ServerSettings((), (), query_other_jobs=True, down_on_error=True)

    def configuration(self) -> dict[str, str]:
        """The controller's settings (`scontrol show config`), by the names of slurm.conf."""
        return commands.read_settings(self._run(*commands.SETTINGS))

    def commands_version(self) -> str:
        """Return the version of the commands of this host; Debian's write `slurm-wlm 22.05.8`."""
        return self._run(*commands.VERSION).decode(errors="replace").strip().rpartition(" ")[2]

    def comment(self, job_id: str, text: str) -> None:
        """AdminComment: only root and operators write it, and what is not ours there stays.

        Raises:
            SiteFault: see `BatchSystem.comment`.
        """
        name, there = self._name(job_id), self.job(job_id).comment
        if there and not there.startswith(NOTE_PREFIX):
            return
        plain = " ".join(re.sub(r"[^A-Za-z0-9 ._:;,/()%+@\[\]-]", " ", text).split())[: node_note.NOTE_LENGTH]
        self._order("update", f"jobid={name}", f"admincomment={plain}", subject=job_id)

    def _order(self, *arguments: str, subject: str) -> None:
        self._run("scontrol", *arguments, subject=subject)

    def _run(self, *command: str, subject: str = "") -> bytes:
        return commands.run(self.tools, command, subject, timeout_s=self.timeout_s, deadline=self.deadline)


ADAPTER: type[BatchSystem] = Slurm
"""What the registry opens."""


def _demand_node(name: str) -> None:
    if not re.fullmatch(HOST_NAME, name):
        raise SiteFault(f"node {name[:80]!r}", "not of the form of a node")
