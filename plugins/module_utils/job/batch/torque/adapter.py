# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Torque: its real commands, by absolute path, each with a deadline and an environment of our own."""

from __future__ import annotations

import contextlib
import pathlib
import re
import typing as t

from ....effects import leaves_nothing
from ....errors import SiteFault
from ....system.clock import Deadline
from ....wire.messages import HOST_NAME, JOB_ID
from ..api import BatchJob, BatchNode, UnknownJob
from ..shared import node_note
from ..shared.server_command import Answer, Refused, first_line, run_command
from .answers import parse_job, parse_jobs, parse_nodes

if t.TYPE_CHECKING:
    from ..api import BatchSystem, ServerSettings

UNKNOWN_JOB = 153
SERVER_GONE = 111


class Torque:
    """Torque 6 (torque.md).

    Args:
        tools: the directory with qstat, pbsnodes and qhold; hooks get a PATH that may not hold it.
        timeout_s: seconds that any one command may take; a server that hangs lets qstat wait for ever.
        deadline: when all of them must be done, if there is such a moment; after it nothing is asked any more.
    """

    def __init__(self, tools: pathlib.Path, *, timeout_s: float = 10.0, deadline: Deadline | None = None) -> None:
        self.tools = tools
        self.timeout_s = timeout_s
        self.deadline = deadline

    @leaves_nothing
    def job(self, job_id: str) -> BatchJob:
        """The job as the server sees it now (`qstat -x -f`); see `BatchSystem.job`."""
        _demand(JOB_ID, job_id, "job id")
        return parse_job(self._run("qstat", "-x", "-f", job_id), job_id)

    def all_jobs(self) -> tuple[BatchJob, ...]:
        """All jobs (`qstat -x -f`, which writes nothing at all where there is none); see `BatchSystem.all_jobs`."""
        data = self._run("qstat", "-x", "-f")
        return parse_jobs(data) if data.strip() else ()

    @leaves_nothing
    def nodes(self) -> tuple[BatchNode, ...]:
        """All nodes (`pbsnodes -x`)."""
        return parse_nodes(self._run("pbsnodes", "-x"))

    def node(self, name: str) -> BatchNode:
        """One node, by its long or short name, in any case.

        Raises:
            SiteFault: the server knows none, or more than one, of that name.
        """
        _demand(HOST_NAME, name, "node")
        nodes = self.nodes()
        found = [node for node in nodes if node.name == name]
        found = found or [node for node in nodes if _short(node.name) == _short(name)]
        if len(found) != 1:
            raise SiteFault(f"node {name}", f"the batch server knows {len(found) or 'no'} nodes of that name")
        return found[0]

    def note(self, node: str) -> str:
        """What is written about a node, or ""."""
        return self._alone(node).note

    def jobs(self, node: str) -> frozenset[str]:
        """The jobs that have slots of a node."""
        return self._alone(node).jobs

    def _alone(self, node: str) -> BatchNode:
        """One node, which may be asked for often.

        Every node asks for itself every few minutes: the server is not made to tell of all of them for that, but for
        a node that it knows by another form of its name.
        """
        _demand(HOST_NAME, node, "node")
        with contextlib.suppress(Refused):
            found = [one for one in parse_nodes(self._run("pbsnodes", "-x", node)) if one.name.lower() == node.lower()]
            if len(found) == 1:
                return found[0]
        return self.node(node)

    def offline(self, node: str, note: str) -> BatchNode:
        """Keep new jobs away, with our note; see `BatchSystem.offline`.

        Raises:
            SiteFault: see `BatchSystem.offline`.
        """
        command = ("pbsnodes", "-o", "-N")
        return node_note.set_offline(
            self, node, note, lambda name, text: self._run(*command, text, name), "pbsnodes -o"
        )

    def clear(self, node: str, note: str) -> bool:
        """Take back `offline` with this very note; anything else is left alone, and False returned.

        Raises:
            SiteFault: see `BatchSystem.clear`.
        """
        return node_note.clear(
            self, node, note, lambda name: self._run("pbsnodes", "-c", "-N", "", name), "pbsnodes -c"
        )

    def hold(self, job_id: str) -> None:
        """`qhold -h u`: the owner can release it with qrls; works for operators, also from root's prologue.

        Raises:
            SiteFault: see `BatchSystem.hold`.
        """
        _demand(JOB_ID, job_id, "job id")
        self._run("qhold", "-h", "u", job_id)
        held = self.job(job_id).hold_types
        if "u" not in held:
            raise SiteFault(f"job {job_id} is not held", f"qhold -h u was told; its holds are {held or 'none'}")

    def delete(self, job_id: str) -> None:
        """`qdel`: the job's owner and operators may."""
        _demand(JOB_ID, job_id, "job id")
        self._run("qdel", job_id)

    def requeue(self, job_id: str) -> None:
        """Nothing: a prologue that exits with 2 makes Torque do it (`hook_calls.exit_status`)."""
        _demand(JOB_ID, job_id, "job id")

    def tell(self, job: BatchJob, lines: t.Sequence[str], *, held: bool) -> None:
        """Do nothing: a hook's standard error is the job's error file."""

    def gave_up(self, job_id: str, start: int) -> bool:
        """Return False: the MOM hears of a deleted job when its prologue has ended, and the server is not asked."""
        return False

    def give_back_time(self, job: BatchJob, seconds: float) -> int:
        """Return 0: walltime begins after the prologue."""
        return 0

    def release_command(self, job_id: str) -> str:
        """`qrls`, which the owner of a job may call."""
        return f"qrls {job_id}"

    def shown_id(self, job_id: str) -> str:
        """The product's form is Torque's own."""
        return job_id

    def server(self) -> ServerSettings:
        """How the batch server is set (`qmgr -c "print server"`)."""
        from .server_settings import parse  # for the doctor alone: hooks do not pay for it

        return parse(self._run("qmgr", "-c", "print server").decode("utf-8", "replace"))

    def comment(self, job_id: str, text: str) -> None:
        """`qalter -W comment=`: works for operators, also from root's prologue; pbs_sched writes its own at a start.

        `-W` is a list joined by commas with `=` in each entry, so that neither may stand in the text.

        Raises:
            SiteFault: see `BatchSystem.comment`.
        """
        _demand(JOB_ID, job_id, "job id")
        plain = " ".join(re.sub(r"[^A-Za-z0-9 ._:;/()%+@\[\]-]", " ", text).split())[: node_note.NOTE_LENGTH]
        self._run("qalter", "-W", f"comment={plain}", job_id)

    def _run(self, tool: str, *arguments: str) -> bytes:
        answer = run_command(
            self.tools, (tool, *arguments), server="the batch server", timeout_s=self.timeout_s, deadline=self.deadline
        )
        if answer.status == 0:
            return answer.out
        raise _failure(tool, arguments[-1], answer)


ADAPTER: type[BatchSystem] = Torque
"""What the registry opens."""


def _failure(tool: str, subject: str, answer: Answer) -> SiteFault:
    if answer.status == UNKNOWN_JOB and tool in ("qstat", "qhold", "qalter"):
        return UnknownJob(f"job {subject}", "the batch server does not know it")
    if answer.status == SERVER_GONE:
        return SiteFault(tool, "the batch server cannot be reached", first_line(answer.err))
    return Refused(f"{tool} {subject}", f"status {answer.status}: {first_line(answer.err) or 'no words'}")


def _demand(pattern: str, text: str, what: str) -> None:
    if not re.fullmatch(pattern, text):
        raise SiteFault(f"{what} {text[:80]!r}", f"not of the form of a {what}")


def _short(host: str) -> str:
    """Wider than `same_host`: of a host with two domains the server knows one, and two nodes so called are refused."""
    return host.partition(".")[0].lower()
