# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spare nodes take the places of nodes that fail while all are asked for their guests (`job/plan/spares.py`)."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import VTorqueError
from ...module_utils.job.plan.job_plan import JobPlan
from ...module_utils.job.plan.spares import may_lose, replace_node
from ...module_utils.job.verdict.decide import another_may_do
from ...module_utils.state import layout
from ...module_utils.system import files
from ...module_utils.wire.form import to_dict
from ...module_utils.wire.messages import NodePart
from .action_base import JobPlace, write_record
from .node_connection import NodeCall

LEAST_S = 5.0
"""Seconds that must be left for another node to be asked: no guest becomes ready sooner."""


class Replacement:
    """The plan of a start while its nodes answer.

    Args:
        place: the start of the job.
        plan: as it was made.
        call_of: begins the conversation with the node of a part.

    Attributes:
        plan: as it is now; `plan.json` says the same.
        errors: of the nodes that have failed, by their names; some have been replaced.
    """

    @leaves_nothing
    def __init__(self, place: JobPlace, plan: JobPlan, call_of: t.Callable[[NodePart], NodeCall]) -> None:
        self._place, self._call_of = place, call_of
        self.plan = plan
        self.errors: dict[str, VTorqueError] = {}

    def call_instead(
        self, node: str, error: VTorqueError, *, made: t.Collection[str], timeout_s: float
    ) -> NodeCall | None:
        """Ask a spare node in the place of one that failed; returns its call, None: no node takes this place.

        Args:
            node: that failed.
            error: of that node.
            made: nodes whose guests are ready.
            timeout_s: that are left for the answer.

        Raises:
            VTorqueError: it cannot be written down.
        """
        self.errors[node] = error
        superior = self.plan.mother_superior
        if timeout_s < LEAST_S or not may_lose(self.plan, node):
            return None
        if not another_may_do(node, self.errors, superior=superior, made=made):
            return None
        self.plan, by = replace_node(self.plan, node)
        files.write(self._place.file(layout.PLAN), self.plan.to_json())
        # what the hook tells the administrator, and the record the job's owner
        found = {"by": by, **error.to_dict(), "host": getattr(error, "node", "") or node}
        write_record(self._place.file(layout.StepFile.REPLACED.of(node)), found)
        part = dataclasses.replace(self.plan.parts[by], do="present", timeout_s=round(timeout_s, 3))
        call = self._call_of(part)
        send_part(call, part)
        return call


def send_part(call: NodeCall, part: NodePart) -> None:
    """Put the question of a start to a node.

    Args:
        call: with the node.
        part: its own.
    """
    call.send_request(json.dumps(to_dict(part), ensure_ascii=True).encode("ascii"))
