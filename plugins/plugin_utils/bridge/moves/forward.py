# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node of a job is told of the job goes on to the spare node that has its guest, and the answer comes back.

The batch system and the job's mother superior know the node alone from which the guest has moved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools

from ....module_utils.errors import VTorqueError
from ....module_utils.job.batch import mother_superior as superior
from ....module_utils.job.batch.host_match import same_host
from ....module_utils.node.state import moves
from ....module_utils.node.state.settings import NodeSettings
from ....module_utils.system.clock import Deadline
from ....module_utils.system.early_question import EarlyQuestion
from ....module_utils.time_budget import SUSPENSION_ANSWER_S
from ....module_utils.wire.form import to_dict
from ....module_utils.wire.messages import LostGuest, NodePart, Suspension
from .connection import Answer, send_request

MARGIN_S, LEAST_S = 1.0, 2.0
"""For this node's own answer once spare nodes have answered, and what those have in any case."""
LISTS = ("removed", "left", "used", "consoles", "series")
"""What an answer to `absent` has, of guests of this node and of those that have moved."""


def remove_moved(part: NodePart, answer: Answer, settings: NodeSettings, deadline: Deadline) -> Answer:
    """Remove what spare nodes have of a start that is over, and return the answer with theirs.

    All of them are asked at once, and none for longer than this node has itself: what it has removed is to be heard.

    Args:
        part: the request, `absent`.
        answer: of this node.
        settings: NodeSettings of this node.
        deadline: of whoever asked this node.
    """
    record = settings.record_dir(part.job_id, part.start)
    rows = moves.read_moved(record)
    if not rows:
        return answer
    left_s = max(LEAST_S, deadline.left_s(part.timeout_s) - MARGIN_S)

    def ask(target: str) -> Answer:
        return send_request(target, NodePart.removal(part.job_id, part.start, target, left_s), left_s)

    questions = {target: EarlyQuestion(functools.partial(ask, target)) for target in moves.targets_of(record)}
    for target, question in questions.items():
        try:
            there = question()
        except VTorqueError as error:
            answer["left"] = [*answer["left"], f"guests that have moved to {target}: {error}"]
            continue
        for name in LISTS:
            answer[name] = [*answer.get(name, []), *there.get(name, [])]
    # a node answers with one series of its figures
    answer["series"] = answer.get("series", [])[:1]
    answer["moves"] = [to_dict(one) for one in rows]
    return answer


def forward_suspension(message: Suspension, settings: NodeSettings) -> tuple[str, ...]:
    """Have the guests that have moved stand still, too, or go on; returns what they lack for that.

    Raises:
        VTorqueError: a spare node does not do it.
    """
    lacks: list[str] = []
    for target in moves.targets_of(settings.record_dir(message.job_id, message.start)):
        answer = send_request(target, dataclasses.replace(message, node=target), SUSPENSION_ANSWER_S)
        lacks += map(str, answer.get("lack", ()))
    return tuple(lacks)


def pass_loss(lost: LostGuest, settings: NodeSettings) -> bool:
    """Pass on to the job's mother superior that a guest was lost which has moved; False: this node has sent none there.

    Raises:
        VTorqueError: she does not take it.
    """
    record = settings.record_dir(lost.job_id, lost.start)
    leader = ""
    with contextlib.suppress(VTorqueError, OSError):
        leader = superior.read_name(record)
    if not leader or not has_moved(lost, settings):
        return False
    send_request(leader, dataclasses.replace(lost, node=settings.node_name))
    return True


def has_moved(lost: LostGuest, settings: NodeSettings) -> bool:
    """Return whether a guest has moved from this node to the one that reports its loss."""
    rows = moves.read_moved(settings.record_dir(lost.job_id, lost.start))
    return any(one.guest == lost.guest and same_host(one.target, lost.node) for one in rows)
