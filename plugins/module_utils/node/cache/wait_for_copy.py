# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the disks of a start's guests stand on: the pool's own file, or this node's copy of it, which is waited for."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from ...errors import NodeFault, SiteFault, VTorqueError
from ...state import log_line
from ...system import process_id
from ...system.clock import Deadline
from ...wire.messages import FS_TYPES, GuestSpec
from ..pool import images
from ..state.settings import NodeSettings
from . import verified

POOL = "sharedfs"
SAY_S = 10.0
"""Between two words in the job's log about how far an image is."""
LEAST_SHARE = 1 / 3
"""Of the time that is left, for an image to arrive, however long guests may take to become ready."""


def wait_for_copies(
    specs: t.Iterable[GuestSpec], settings: NodeSettings, deadline: Deadline, step: t.Callable[[str], None]
) -> None:
    """Wait until this node has the copies that guests are to stand on; the pool's own files are there or not.

    Args:
        specs: of the guests.
        settings: this node's own word.
        deadline: when there must be an answer; time for the guests themselves is left.
        step: hears what is done, and may raise to end it.

    Raises:
        UserFault: the image has no record.
        ImageFault: the pool does not hold what the image's record says.
        SiteFault: a copy is still arriving, cannot arrive, or has no room.
        NodeFault: this node's disk is full or broken.
    """
    wanted = [(fs_type, name) for fs_type, name in _needed(specs) if fs_type != POOL or _has_failed(name, settings)]
    if not wanted:
        return
    from . import copy_queue  # 5 ms that only those pay who stand on copies
    from .copies import sources_of  # as the queue: only those pay who stand on copies
    from .locations import cache_of  # as the queue: only those pay who stand on copies

    until = Deadline.after(max(deadline.left_s() - settings.ready_timeout_s, deadline.left_s() * LEAST_SHARE))
    for fs_type, name in wanted:
        image = images.find(name, settings.pool)
        if fs_type != POOL:
            sources_of(image)
            if cache_of(settings, fs_type).find(image) is not None:
                continue
        if (wrong := copy_queue.refusal(settings, image)) is not None:
            raise wrong
        if fs_type == POOL:
            continue
        what = copy_queue.Want(fs_type, image.name)
        copy_queue.want(settings, what)
        copy_queue.wait(settings, what, until, _ProgressLog(step).write)


@contextlib.contextmanager
def base_of(image: images.Image, fs_type: str, settings: NodeSettings) -> t.Iterator[images.Image]:
    """The image as a guest's disk is to stand on it; until an overlay does, nobody takes it away.

    Args:
        image: of the pool.
        fs_type: of the guest.
        settings: this node's own word.

    Raises:
        SiteFault: the copy that was there has gone.
        NodeFault: as whoever makes the guest raises it; a copy that cannot be read goes then, and is fetched anew.
    """
    if fs_type == POOL:
        yield image
        return
    from .locations import cache_of  # as the queue: only those pay who stand on copies

    cache, copy = cache_of(settings, fs_type), None
    try:
        with cache.hold_copies():
            copy = cache.find(image)
            if copy is None:
                raise SiteFault(
                    f"the copy of image {image.name} on {settings.node_name}", "went while its guest was made",
                    "the job is tried again",
                )  # fmt: skip
            cache.used(image)
            yield copy
    except NodeFault:
        # the next job would meet the same bad part of the disk, whose test looks elsewhere and finds all well
        if copy is not None and not _can_be_read(copy):
            cache.remove(image.name, even_used=True)
        raise


def _can_be_read(copy: images.Image) -> bool:
    from ..pool.disk_check import inspect  # as the queue: only those pay who stand on copies

    try:
        inspect(copy)
    except VTorqueError as error:
        return not isinstance(error, NodeFault)
    return True


def look_again(specs: t.Iterable[GuestSpec], settings: NodeSettings) -> None:
    """Let the digests of images be taken that are used for the first time; the guests are ready, nobody waits for it.

    Of a copy that is once after each boot, of the pool's own file once for each content.

    Args:
        specs: of the guests.
        settings: this node's own word.
    """
    for fs_type, name in _needed(specs):
        with contextlib.suppress(VTorqueError, OSError):  # it is no reason to end guests that are ready
            image = images.find(name, settings.pool)
            if not _is_first_use(image, fs_type, settings):
                continue
            from . import copy_queue  # as the queue: only those pay who stand on copies

            if copy_queue.refusal(settings, image) is None:
                copy_queue.want(settings, copy_queue.Want(fs_type, image.name))


def _needed(specs: t.Iterable[GuestSpec]) -> list[tuple[str, str]]:
    """What each guest stands on: kind and image, once; an own image of the user's is looked at by them alone."""
    return sorted({(spec.fs_type, spec.image) for spec in specs if not spec.own_image})


def _has_failed(name: str, settings: NodeSettings) -> bool:
    """Return whether there is a note about an image at all.  What it says is `image_wants`' to read."""
    return any((settings.images_dir / "failed" / f"{fs_type}:{name}").exists() for fs_type in FS_TYPES)


def _is_first_use(image: images.Image, fs_type: str, settings: NodeSettings) -> bool:
    if fs_type == POOL:
        return bool(image.record) and not verified.is_checked(image, settings)
    from .locations import cache_of  # as the queue: only those pay who stand on copies

    copy = cache_of(settings, fs_type).copy(image.name)
    return copy is not None and copy.boot_id != process_id.boot_id()


class _ProgressLog:
    """What is said in the job's log while an image arrives."""

    def __init__(self, step: t.Callable[[str], None]) -> None:
        self._step, self._said_at = step, -SAY_S

    def write(self, text: str) -> None:
        self._step(f"the wait for an image: {text}")
        if time.monotonic() - self._said_at >= SAY_S:
            self._said_at = time.monotonic()
            with contextlib.suppress(OSError):  # a log that cannot be written stops nothing
                os.write(2, log_line.log_line(text))
