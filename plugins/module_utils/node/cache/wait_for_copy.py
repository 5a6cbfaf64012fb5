# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the disks of a start's guests stand on: the pool's own file, or this node's copy of it, which is waited for."""

from __future__ import annotations

import contextlib
import time
import types
import typing as t

from ...errors import VTorqueError
from ...state import event_log
from ...system.clock import Deadline
from ...wire.messages import FS_TYPES, GuestSpec
from ..pool import images
from ..state.settings import NodeSettings
from . import pool_digests

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
        settings: NodeSettings of this node.
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
    until = Deadline.after(max(deadline.left_s() - settings.ready_timeout_s, deadline.left_s() * LEAST_SHARE))
    for fs_type, name in wanted:
        image = images.find(name, settings.pool)
        if fs_type == POOL:
            _standing_copies().refuse_failed(image, settings)
        else:
            _standing_copies().wait(image, fs_type, settings, until, _ProgressLog(step).write)


@contextlib.contextmanager
def base_of(image: images.Image, fs_type: str, settings: NodeSettings) -> t.Iterator[images.Image]:
    """The image as a guest's disk is to stand on it; until an overlay does, nobody takes it away.

    Args:
        image: of the pool.
        fs_type: of the guest.
        settings: NodeSettings of this node.

    Raises:
        SiteFault: the copy that was there has gone.
        NodeFault: as whoever makes the guest raises it; a copy that cannot be read goes then, and is fetched anew.
    """
    if fs_type == POOL:
        yield image
        return
    with _standing_copies().lock_copy(image, fs_type, settings) as copy:
        yield copy


def request_digests(specs: t.Iterable[GuestSpec], settings: NodeSettings) -> None:
    """Let the digests of images be taken that are used for the first time; the guests are ready, nobody waits for it.

    Of a copy that is once after each boot, of the pool's own file once for each content.

    Args:
        specs: of the guests.
        settings: NodeSettings of this node.
    """
    for fs_type, name in _needed(specs):
        with contextlib.suppress(VTorqueError, OSError):  # it is no reason to end guests that are ready
            image = images.find(name, settings.pool)
            if fs_type == POOL and (not image.record or pool_digests.is_checked(image, settings)):
                continue
            _standing_copies().want_digest(image, fs_type, settings)


def _standing_copies() -> types.ModuleType:
    from . import standing_copies  # 5 ms that only those pay who stand on copies, or are the first

    return standing_copies


def _needed(specs: t.Iterable[GuestSpec]) -> list[tuple[str, str]]:
    """What each guest stands on: kind and image, once; an own image of the user's is looked at by them alone."""
    return sorted({(spec.fs_type, spec.image) for spec in specs if not spec.own_image})


def _has_failed(name: str, settings: NodeSettings) -> bool:
    """Return whether there is a note about an image at all.  What it says is `image_wants`' to read."""
    return any((settings.images_dir / "failed" / f"{fs_type}:{name}").exists() for fs_type in FS_TYPES)


class _ProgressLog:
    """What is said in the job's log while an image arrives."""

    def __init__(self, step: t.Callable[[str], None]) -> None:
        self._step, self._said_at = step, -SAY_S

    def write(self, text: str) -> None:
        self._step(f"the wait for an image: {text}")
        if time.monotonic() - self._said_at >= SAY_S:
            self._said_at = time.monotonic()
            event_log.note(2, text, component="cache")
