# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the servers of Torque and OpenPBS do alike: their commands have one origin, and most of them one form."""

from __future__ import annotations

import pathlib
import re
import typing as t

from ....errors import SiteFault
from ....wire.messages import JOB_ID
from ...request.demand import NodeSize
from ..api import CHECKPOINT_SIGNAL, PARK_SIGNAL, WANTED
from . import node_note
from .server_command import Answer, run_command

if t.TYPE_CHECKING:
    from ....system.clock import Deadline
    from ..api import BatchJob, BatchNode

SHORT_ID = r"[0-9]{1,12}(\[[0-9]{1,7}\])?"
ODD_IN_COMMENTS = r"[^A-Za-z0-9 ._:;/()%+@\[\]-]"
"""`-W` is a list joined by commas with `=` in each entry, so that neither may stand in a comment."""


class PbsServer:
    """A batch server that is asked by commands of PBS; each system says how its own answers are read.

    Args:
        tools: the directory with qstat, pbsnodes and qhold; hooks get a PATH that may not hold it.
        timeout_s: seconds that any one command may take; a server that hangs lets qstat wait for ever.
        deadline: when all of them must be done, if there is such a moment; after it nothing is asked any more.
    """

    def __init__(self, tools: pathlib.Path, *, timeout_s: float = 10.0, deadline: Deadline | None = None) -> None:
        self.tools = tools
        self.timeout_s = timeout_s
        self.deadline = deadline

    def job(self, job_id: str) -> BatchJob:
        """The job as the server sees it now; see `BatchSystem.job`."""
        raise NotImplementedError

    def nodes(self) -> tuple[BatchNode, ...]:
        """All nodes; see `BatchSystem.nodes`."""
        raise NotImplementedError

    def node_sizes(self, queue: str, wanted: str | None) -> tuple[NodeSize, ...]:
        """Return the sizes of all nodes with that property: any queue may lead to any of them."""
        needed = {wanted} - {None}
        nodes = self.nodes()
        return tuple(NodeSize(node.name, node.slots, node.memory_mib) for node in nodes if needed <= node.properties)

    def hold(self, job_id: str) -> None:
        """`qhold -h u`: the owner can release it with qrls; works for operators, also from root's prologue.

        Raises:
            SiteFault: see `BatchSystem.hold`.
        """
        require_form(JOB_ID, job_id, "job id")
        self._run("qhold", "-h", "u", job_id)
        held = self.job(job_id).hold_types
        if "u" not in held:
            raise SiteFault(f"job {job_id} is not held", f"qhold -h u was called; its holds are {held or 'none'}")

    def suspend(self, job_id: str) -> None:
        """`qsig -s suspend`: operators may; it answers when the MOM has stopped the job, 5 s later.

        Raises:
            SiteFault: see `BatchSystem.suspend`.
        """
        require_form(JOB_ID, job_id, "job id")
        self._run("qsig", "-s", "suspend", job_id)
        if (state := self.job(job_id).state) != "S":
            raise SiteFault(f"job {job_id} is not suspended", f"qsig -s suspend was called; its state is {state}")

    def request_checkpoint(self, job_id: str, *, park: bool = False) -> None:
        """`qsig -s 60` or 61, which the owner may: real-time signals, which the job's shell does not pass on.

        Raises:
            SiteFault: see `BatchSystem.request_checkpoint`.
        """
        require_form(JOB_ID, job_id, "job id")
        self._run("qsig", "-s", str(PARK_SIGNAL if park else CHECKPOINT_SIGNAL), job_id)

    def park(self, job_id: str) -> None:
        """`qhold -h u`, then `qrerun`, which operators may: a job that is queued again with a hold stays where it is.

        Raises:
            SiteFault: see `BatchSystem.park`.
        """
        self.hold(job_id)
        try:
            self._run("qrerun", job_id)
        except SiteFault:
            if self.job(job_id).state != "R":  # it was heard all the same
                return
            self._run("qrls", "-h", "u", job_id)
            raise

    def delete(self, job_id: str) -> None:
        """`qdel`: the job's owner and operators may."""
        require_form(JOB_ID, job_id, "job id")
        self._run("qdel", job_id)

    def requeue(self, job_id: str) -> None:
        """Nothing: the exit status of a hook has it done (`hook_calls`)."""
        require_form(JOB_ID, job_id, "job id")

    def notify_owner(self, job: BatchJob, lines: t.Sequence[str], *, held: bool) -> None:
        """Do nothing: a hook's standard error is the job's error file."""

    def start_state(self, job_id: str, start: int) -> str:
        """Return WANTED: Torque's MOM hears of a deleted job when its prologue has ended; OpenPBS ends our program."""
        return WANTED

    def give_back_time(self, job: BatchJob, seconds: float) -> int:
        """Return 0: walltime begins after the prologue."""
        return 0

    def release_command(self, job_id: str) -> str:
        """`qrls`, which the owner of a job may call."""
        return f"qrls {job_id}"

    def find_id(self, named: str) -> str:
        """The server completes a short id by its own name (`qstat`).

        Raises:
            SiteFault: see `BatchSystem.find_id`.
        """
        if re.fullmatch(JOB_ID, named):
            return named
        require_form(SHORT_ID, named, "job id")
        found = [job.job_id for job in self._query_job(named) if job.job_id.partition(".")[0] == named]
        if len(found) != 1:
            raise SiteFault(f"job {named}", f"the batch server's answer holds {len(found) or 'no'} jobs of that name")
        return found[0]

    def _query_job(self, job_id: str) -> tuple[BatchJob, ...]:
        """Return what the server tells of a job, by its short or long id."""
        raise NotImplementedError

    def display_id(self, job_id: str) -> str:
        """The product's form is the server's own."""
        return job_id

    def comment(self, job_id: str, text: str) -> None:
        """`qalter -W comment=`: works for operators, also from root's prologue; a scheduler writes its own over it.

        OpenPBS lets a hook of the MOM set it, too, and drops that (23.06.06: verdict-hooks.txt).

        Raises:
            SiteFault: see `BatchSystem.comment`.
        """
        require_form(JOB_ID, job_id, "job id")
        self._run("qalter", "-W", f"comment={plain_comment(text)}", job_id)

    def _failure(self, tool: str, subject: str, answer: Answer) -> SiteFault:
        """Return what the failure of a command means."""
        raise NotImplementedError

    def _run(self, tool: str, *arguments: str) -> bytes:
        answer = run_command(
            self.tools, (tool, *arguments), server="the batch server", timeout_s=self.timeout_s, deadline=self.deadline
        )
        if answer.status == 0:
            return answer.out
        raise self._failure(tool, arguments[-1], answer)


def plain_comment(text: str) -> str:
    """Return a text as a comment of a job can be."""
    return " ".join(re.sub(ODD_IN_COMMENTS, " ", text).split())[: node_note.NOTE_LENGTH]


def require_form(pattern: str, text: str, what: str) -> None:
    """Let nothing that is not of its form reach a command.

    Raises:
        SiteFault: it is not.
    """
    if not re.fullmatch(pattern, text):
        raise SiteFault(f"{what} {text[:80]!r}", f"not of the form of a {what}")
