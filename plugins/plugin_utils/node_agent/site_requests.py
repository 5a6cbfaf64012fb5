# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of the site to `vtorque-node` that concern no job that runs: the node, copies of images, saved guests."""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.node import occupancy
from ...module_utils.node.cache import prefetch
from ...module_utils.wire import node_topology
from ...module_utils.wire.form import from_dict, to_dict
from ...module_utils.wire.health_report import request_from_dict
from ...module_utils.wire.moves import Arrival, Evacuation, Stream
from ..bridge import suspension
from ..bridge.checkpoints.node_steps import take_step
from ..bridge.moves import evacuate, forward
from ..bridge.node_settings import host_name, read_settings, read_usable_configuration
from ..bridge.upkeep import examine
from . import move_requests
from .authorize import check_host
from .protocol import make_answer

if t.TYPE_CHECKING:
    from ...module_utils.node.state.settings import NodeSettings
    from ...module_utils.wire.health_report import ReportRequest
    from ...module_utils.wire.messages import ImageOrder, LostGuest, SavedRequest
    from ..bridge.node_settings import Configuration, LoadPolicy
    from .protocol import Answer

__all__ = [
    "answer_image",
    "answer_move",
    "answer_report",
    "answer_saved",
    "answer_topology",
    "decode_move",
    "decode_topology",
    "give_back_spare",
    "has_moved",
    "pass_loss",
    "remove_moved",
    "request_from_dict",
    "take_step",
    "tell_moved",
]

Message = Arrival | Stream | Evacuation
MESSAGES: dict[str, type[Message]] = {"arrive": Arrival, "stream": Stream, "evacuate": Evacuation}
decode_topology = node_topology.request_from_dict
has_moved, remove_moved, tell_moved = forward.has_moved, forward.remove_moved, forward.forward_suspension


def answer_image(order: ImageOrder, load: LoadPolicy) -> Answer:
    """Return how far the copy of an image is; to whoever root lets in.

    Args:
        order: which image.
        load: gives the site's policy.
    """
    return {**make_answer(), "image": prefetch.answer(order, read_settings(load))}


def answer_saved(request: SavedRequest, load: LoadPolicy) -> Answer:
    """Return which guests are on this node's disk, or what was removed of a job; to whoever root lets in.

    Args:
        request: which of both.
        load: gives the site's policy.

    Raises:
        VTorqueError: the job's guests may be wanted yet, or cannot be removed.
    """
    policy, settings = read_usable_configuration(load)
    if request.do == "saved":
        return make_answer(saved=suspension.list_saved(settings))
    return make_answer(removed=suspension.forget_saved(request, policy, settings))


def answer_report(request: ReportRequest, load: LoadPolicy) -> Answer:
    """Return how this node is; it tells no secrets, to whoever root lets in.

    Args:
        request: how long it may take.
        load: gives the site's policy.
    """
    report = examine.examine_here(load, host_name(), request.timeout_s)
    return {**make_answer(), "report": report.to_dict()}


def answer_topology(load: LoadPolicy) -> Answer:
    """Return what this node has, and what guests of jobs have of it; to whoever root lets in.

    Args:
        load: gives the site's policy.
    """
    return {**make_answer(), "topology": to_dict(occupancy.read_occupancy(read_settings(load)))}


def decode_move(do: str, data: t.Any) -> Message:
    """Return the message of a request of a move.

    Args:
        do: its kind.
        data: parsed JSON.

    Raises:
        FormError: it is of another form.
    """
    return from_dict(MESSAGES[do], data)


def answer_move(
    message: Message, load: LoadPolicy, environment: t.Mapping[str, str], tell: t.Callable[[str], list[str]]
) -> Answer:
    """Return the answer to a request of a move.

    Args:
        message: of any of its kinds.
        load: gives the site's policy.
        environment: holds SSH_CONNECTION.
        tell: returns the command that reports a lost guest to a node.

    Raises:
        VTorqueError: it is not to be, or was not done.
    """
    if isinstance(message, Evacuation):
        return move_requests.answer_evacuation(message, load, environment)
    if isinstance(message, Stream):
        return move_requests.answer_stream(message, load, environment)
    return move_requests.answer_arrival(message, load, environment, tell)


def give_back_spare(configuration: Configuration, job_id: str) -> None:
    """Let this node be a free spare again after a job; what fails is for the next sweep."""
    with contextlib.suppress(VTorqueError):
        evacuate.give_back_spare(*configuration, job_id=job_id)


def pass_loss(lost: LostGuest, settings: NodeSettings, environment: t.Mapping[str, str]) -> bool:
    """Pass on that a guest was lost which has moved from here; False: this node leads its job, or has sent none there.

    Raises:
        VTorqueError: the caller is not the node that has it, or the mother superior does not take it.
    """
    if not forward.has_moved(lost, settings):
        return False
    check_host(lost.job_id, lost.node, environment.get("SSH_CONNECTION", ""), "the node to which its guest has moved")
    return forward.pass_loss(lost, settings)
