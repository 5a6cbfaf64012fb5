# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Torque: its real commands, by absolute path, each with a deadline and an environment of our own."""

from __future__ import annotations

import contextlib
import typing as t

from ....effects import leaves_nothing
from ....errors import SiteFault
from ....wire.messages import HOST_NAME, JOB_ID
from ..api import BatchJob, BatchNode, UnknownJob
from ..host_match import find_node
from ..shared import node_note
from ..shared.pbs_server import PbsServer, require_form
from ..shared.server_command import Answer, CommandRefused, first_line
from .answers import parse_job, parse_jobs, parse_nodes

if t.TYPE_CHECKING:
    from ..api import BatchSystem, ServerSettings

UNKNOWN_JOB = 153
SERVER_GONE = 111


class Torque(PbsServer):
    """Torque 6 (torque.md).

    Args:
        tools: the directory with qstat, pbsnodes and qhold; hooks get a PATH that may not hold it.
        timeout_s: seconds that any one command may take; a server that hangs lets qstat wait for ever.
        deadline: when all of them must be done, if there is such a moment; after it nothing is asked any more.
    """

    @leaves_nothing
    def job(self, job_id: str) -> BatchJob:
        """The job as the server sees it now (`qstat -x -f`); see `BatchSystem.job`."""
        require_form(JOB_ID, job_id, "job id")
        return parse_job(self._run("qstat", "-x", "-f", job_id), job_id)

    def _query_job(self, job_id: str) -> tuple[BatchJob, ...]:
        return parse_jobs(self._run("qstat", "-x", "-f", job_id))

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
        require_form(HOST_NAME, name, "node")
        return find_node(self.nodes(), name, is_same=_same_first_label)

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
        require_form(HOST_NAME, node, "node")
        with contextlib.suppress(CommandRefused):
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

    def server(self) -> ServerSettings:
        """How the batch server is set (`qmgr -c "print server"`)."""
        from .server_settings import parse  # for the doctor alone: hooks do not pay for it

        return parse(self._run("qmgr", "-c", "print server").decode("utf-8", "replace"))

    def _failure(self, tool: str, subject: str, answer: Answer) -> SiteFault:
        if answer.status == UNKNOWN_JOB and tool in ("qstat", "qhold", "qalter"):
            return UnknownJob(f"job {subject}", "the batch server does not know it")
        if answer.status == SERVER_GONE:
            return SiteFault(tool, "the batch server cannot be reached", first_line(answer.err))
        return CommandRefused(f"{tool} {subject}", f"status {answer.status}: {first_line(answer.err) or 'no words'}")


ADAPTER: type[BatchSystem] = Torque
"""What the registry opens."""


def _same_first_label(one: str, other: str) -> bool:
    """Wider than `same_host`: of a host with two domains the server knows one, and two nodes so called are refused."""
    return one.partition(".")[0].lower() == other.partition(".")[0].lower()
