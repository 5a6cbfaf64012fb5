# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's answer to who wants an image here ahead of jobs: it is here, or how far it is."""

from __future__ import annotations

import typing as t

from ...errors import VTorqueError
from ...system.clock import Deadline
from ...wire.messages import ImageOrder
from ..pool import images
from ..state.settings import NodeSettings
from . import copy_queue
from .copy_queue import StillArriving, Want
from .copy_store import sources_of
from .locations import cache_of


def answer(order: ImageOrder, settings: NodeSettings) -> dict[str, t.Any]:
    """A node's answer: the copy is here, or how far it is.

    Args:
        order: what is asked.
        settings: NodeSettings of this node.

    Raises:
        VTorqueError: it cannot be; says why.
    """
    image = images.find(order.image, settings.pool)
    sources_of(image)
    what = Want(order.fs_type, image.name)
    if cache_of(settings, order.fs_type).find(image) is not None:
        return {"here": True, "words": ""}
    if not copy_queue.is_wanted(settings, what):
        failed = copy_queue.failure(settings, what) if order.again else None
        if isinstance(failed, VTorqueError):
            raise failed  # pylint: disable=raising-bad-type  # it takes each function that may return None for one that does
        copy_queue.want(settings, what)
    try:
        copy_queue.wait(settings, what, Deadline.after(order.timeout_s))
    except StillArriving as still:
        return {"here": False, "words": still.why}
    return {"here": True, "words": ""}
