# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenPBS: its real commands, by absolute path, each with a deadline and an environment of our own.

In the program of a hook, orders are the hook's to do (`hook_orders`): a command of root's would need an operator.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ....effects import leaves_nothing
from ....errors import SiteFault
from ....wire.messages import HOST_NAME, JOB_ID
from ..api import NOTE_PREFIX, BatchJob, BatchNode, PastJob, ServerSettings, UnknownJob
from ..host_match import find_node, same_host
from ..shared import node_note
from ..shared.pbs_server import PbsServer, require_form
from ..shared.server_command import Answer, CommandRefused, first_line
from . import hook_orders
from .answers import parse_job, parse_jobs, parse_nodes
from .owner_file import add_owner

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchSystem

UNKNOWN_JOB = (153, 35)
"""Of an error of the server's, 15001 (no such job) and 15139 (it is over), what an exit status holds."""


class OpenPbs(PbsServer):
    """OpenPBS 23.06.

    Args:
        tools: the directory with qstat, pbsnodes and qhold; hooks get a PATH that may not hold it.
        timeout_s: seconds that any one command may take.
        deadline: when all of them must be done, if there is such a moment; after it nothing is asked any more.
    """

    @leaves_nothing
    def job(self, job_id: str) -> BatchJob:
        """The job as the server sees it now, or saw it last (`qstat -x`); see `BatchSystem.job`.

        As whom it runs is what this node's MOM has, where the server does not show it (`owner_file`).
        """
        require_form(JOB_ID, job_id, "job id")
        return add_owner(parse_job(self._run("qstat", "-x", "-f", "-F", "json", job_id), job_id))

    def _query_job(self, job_id: str) -> tuple[BatchJob, ...]:
        return parse_jobs(self._run("qstat", "-x", "-f", "-F", "json", job_id))

    def all_jobs(self) -> tuple[BatchJob, ...]:
        """All jobs that are not over, members of arrays too (`qstat -t`); see `BatchSystem.all_jobs`."""
        data = self._run("qstat", "-t", "-f", "-F", "json")
        return parse_jobs(data) if data.strip() else ()

    @leaves_nothing
    def nodes(self) -> tuple[BatchNode, ...]:
        """All nodes (`pbsnodes -a`)."""
        return parse_nodes(self._run("pbsnodes", "-a", "-F", "json"))

    def node(self, name: str) -> BatchNode:
        """One node, by its long or short name, in any case.

        Raises:
            SiteFault: the server knows none, or more than one, of that name.
        """
        require_form(HOST_NAME, name, "node")
        return find_node(self.nodes(), name)

    def note(self, node: str) -> str:
        """What is written about a node, or ""."""
        return self.node(node).note

    def jobs(self, node: str) -> frozenset[str]:
        """The jobs that have slots of a node."""
        return self.node(node).jobs

    def offline(self, node: str, note: str) -> BatchNode:
        """Keep new jobs away, with our note; see `BatchSystem.offline`.

        The node of a hook is set offline by the hook itself, once our program has ended: that cannot be read back.

        Raises:
            SiteFault: see `BatchSystem.offline`.
        """
        if hook_orders.in_hook() and same_host(hook_orders.own_node(), node):
            return self._offline_by_hook(node, note)
        return node_note.set_offline(
            self, node, note, lambda name, text: self._run("pbsnodes", "-o", "-C", text, name), "pbsnodes -o"
        )

    def _offline_by_hook(self, node: str, note: str) -> BatchNode:
        seen, text = self.node(node), node_note.one_line(note)
        if (seen.note or seen.offline) and not seen.note.startswith(NOTE_PREFIX):
            return seen
        hook_orders.write({"order": "offline", "note": text})
        return dataclasses.replace(seen, states=seen.states | {"offline"}, note=text)

    def clear(self, node: str, note: str) -> bool:
        """Take back `offline` with this very note; anything else is left alone, and False returned.

        Raises:
            SiteFault: see `BatchSystem.clear`.
        """
        return node_note.clear(
            self, node, note, lambda name: self._run("pbsnodes", "-r", "-C", "", name), "pbsnodes -r"
        )

    def hold(self, job_id: str) -> None:
        """A hold of the user's own kind, by the hook or by `qhold -h u`: the owner can release it with qrls.

        Raises:
            SiteFault: see `BatchSystem.hold`.
        """
        if hook_orders.in_hook():
            require_form(JOB_ID, job_id, "job id")
            hook_orders.write({"order": "hold"})
        else:
            super().hold(job_id)

    def server(self) -> ServerSettings:
        """How the batch server is set (`qmgr -c "print server"`)."""
        text = self._run("qmgr", "-c", "print server").decode("utf-8", "replace")
        found = re.findall(r"^set server (\S+) \+?= (.*)$", text, re.MULTILINE)
        values = dict(found)
        return ServerSettings(
            tuple(value for name, value in found if name == "operators"),
            tuple(value for name, value in found if name == "managers"),
            values.get("query_other_jobs", "True") == "True",
            down_on_error=True,
        )

    def resource(self) -> str:
        """How the resource of our requests is defined (`qmgr -c "print resource vtorque"`), for the doctor."""
        return self._run("qmgr", "-c", "print resource vtorque").decode("utf-8", "replace")

    def _failure(self, tool: str, subject: str, answer: Answer) -> SiteFault:
        first = first_line(answer.err)
        if answer.status in UNKNOWN_JOB and tool.startswith("q"):
            return UnknownJob(f"job {subject}", "the batch server does not know it")
        if "annot connect" in answer.err:
            return SiteFault(tool, "the batch server cannot be reached", first)
        return CommandRefused(f"{tool} {subject}", f"status {answer.status}: {first or 'no text'}")


ADAPTER: type[BatchSystem] = OpenPbs
"""What the registry opens."""


def past_job(job_id: str, start: int, policy: Policy, *, days: int) -> PastJob:
    """A start of a job that the server has forgotten: nothing on this host tells of it.

    Args:
        job_id: of the job.
        start: not used, as all that follow; see `HistoryAdapter`.
        policy: of the site.
        days: how long ago it may have ended.

    Raises:
        UnknownJob: always; OpenPBS's accounting is not read.
    """
    raise UnknownJob(f"job {job_id}", "the batch server has forgotten it, and OpenPBS's accounting is not read")
