# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This node's copies of images as guests stand on them: waited for, held while a disk is made, and looked at again."""

from __future__ import annotations

import contextlib
import typing as t

from ...errors import NodeFault, SiteFault, VTorqueError
from ...system.clock import Deadline
from ...system.process import process_id
from ..pool import images
from ..pool.disk_check import inspect
from ..state.settings import NodeSettings
from . import copy_queue
from .copy_store import sources_of
from .locations import POOL, cache_of


def refuse_failed(image: images.Image, settings: NodeSettings) -> None:
    """Raise what is known to be wrong with an image."""
    if (wrong := copy_queue.refusal(settings, image)) is not None:
        raise wrong


def wait(
    image: images.Image, fs_type: str, settings: NodeSettings, until: Deadline, report: t.Callable[[str], None]
) -> None:
    """Wait until this node has a copy.

    Args:
        image: of the pool.
        fs_type: where the copy is to be.
        settings: NodeSettings of this node.
        until: when it must be there.
        report: hears how far it is.

    Raises:
        UserFault: the image has no record.
        ImageFault: the pool does not hold what the image's record says.
        SiteFault: the copy is still arriving, cannot arrive, or has no room.
        NodeFault: this node's disk is full or broken.
    """
    sources_of(image)
    if cache_of(settings, fs_type).find(image) is not None:
        return
    refuse_failed(image, settings)
    what = copy_queue.Want(fs_type, image.name)
    copy_queue.want(settings, what)
    copy_queue.wait(settings, what, until, report)


@contextlib.contextmanager
def lock_copy(image: images.Image, fs_type: str, settings: NodeSettings) -> t.Iterator[images.Image]:
    """Keep everybody from taking a copy away until an overlay stands on it.

    Args:
        image: of the pool.
        fs_type: where the copy is.
        settings: NodeSettings of this node.

    Raises:
        SiteFault: the copy that was there has gone.
        NodeFault: as whoever makes the guest raises it; a copy that cannot be read goes then, and is fetched anew.
    """
    cache, copy = cache_of(settings, fs_type), None
    try:
        with cache.lock_copies():
            copy = cache.find(image)
            if copy is None:
                raise SiteFault(
                    f"the copy of image {image.name} on {settings.node_name}",
                    "went while its guest was made",
                    "the job is tried again",
                )
            cache.used(image)
            yield copy
    except NodeFault:
        # the next job would meet the same bad part of the disk, whose test looks elsewhere and finds all well
        if copy is not None and not _can_be_read(copy):
            cache.remove(image.name, even_used=True)
        raise


def _can_be_read(copy: images.Image) -> bool:
    try:
        inspect(copy)
    except VTorqueError as error:
        return not isinstance(error, NodeFault)
    return True


def want_digest(image: images.Image, fs_type: str, settings: NodeSettings) -> None:
    """Let the digest of an image be taken: of the pool's own file, or of a copy that is used first since the boot.

    Args:
        image: of the pool.
        fs_type: what a guest stands on.
        settings: NodeSettings of this node.
    """
    if fs_type != POOL:
        copy = cache_of(settings, fs_type).copy(image.name)
        if copy is None or copy.boot_id == process_id.boot_id():
            return
    if copy_queue.refusal(settings, image) is None:
        copy_queue.want(settings, copy_queue.Want(fs_type, image.name))
