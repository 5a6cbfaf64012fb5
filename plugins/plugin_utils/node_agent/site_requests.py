# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of the site to `vtorque-node` that concern no job that runs: the node, copies of images, saved guests."""

from __future__ import annotations

import typing as t

from ...module_utils.node import occupancy
from ...module_utils.node.cache import prefetch
from ...module_utils.wire import node_topology
from ...module_utils.wire.form import to_dict
from ...module_utils.wire.health_report import request_from_dict
from ..bridge import examine, suspension
from ..bridge.checkpoints.node_steps import take_step
from ..bridge.node_settings import host_name, read_settings, read_usable_configuration
from .protocol import make_answer

if t.TYPE_CHECKING:
    from ...module_utils.wire.health_report import ReportRequest
    from ...module_utils.wire.messages import ImageOrder, SavedRequest
    from ..bridge.node_settings import LoadPolicy
    from .protocol import Answer

__all__ = [
    "answer_image",
    "answer_report",
    "answer_saved",
    "answer_topology",
    "decode_topology",
    "request_from_dict",
    "take_step",
]

decode_topology = node_topology.request_from_dict


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
