# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wanted of the image pool, worked off: one image at a time on a node, by a program that lives in no job."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import typing as t

from ...errors import ImageFault, NodeFault, SiteFault, UserFault, VTorqueError, broken_disk
from ...state.event_log import WARNING, Log
from ...system import files
from ...system.process import process_id
from ..pool import images
from ..state.settings import NodeSettings
from . import copy_queue, pool_digests
from .copy_image import Pace, check, fetch
from .copy_queue import Progress, Want
from .copy_store import Cache
from .locations import POOL, RAMDISK, cache_of, limit_bytes, promised_bytes

FULL = (errno.ENOSPC, errno.EDQUOT)
TELL_S = 1.0
"""Between two words about how far it is."""


def work_off(settings: NodeSettings, log: Log, *, verify: t.Sequence[str] = ()) -> tuple[str, ...]:
    """Do everything that is wanted, the oldest first, until nothing is.

    Whoever works already is waited for: what is wanted now may have come too late for them.

    Args:
        settings: NodeSettings of this node.
        log: hears what was done.
        verify: copies whose digest is taken first; what is broken is wanted again.

    Returns:
        The copies that were broken.
    """
    files.make_directory(settings.images_dir)
    # held for as long as this process lives, however it ends
    fd = os.open(copy_queue.lock_of(settings), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        broken = tuple(name for name in verify if not _verify(settings, Want("local", name), log))
        while wanted := copy_queue.wanted(settings):
            _one(settings, wanted[0], log)
    finally:
        copy_queue.report_progress(settings, None)
        os.close(fd)
    return broken


def _one(settings: NodeSettings, what: Want, log: Log) -> None:
    image: images.Image | None = None
    began = time.monotonic()
    try:
        image = images.find(what.image, settings.pool)
        outcome = _provide_copy(settings, what, image, log)
    except (VTorqueError, OSError) as problem:
        error = problem if isinstance(problem, VTorqueError) else NodeFault(f"image {what.image}", str(problem))
        log(f"{what}: {error}", WARNING)
        copy_queue.fail(settings, what, error, image)
        return
    log(f"{what}: {outcome}, in {time.monotonic() - began:.0f} s")
    copy_queue.done(settings, what)


def _provide_copy(settings: NodeSettings, what: Want, image: images.Image, log: Log) -> str:
    """A copy of the image that was verified in this boot, or the pool's own file verified; in words, what that took."""
    if what.fs_type == POOL:
        if not pool_digests.is_checked(image, settings):
            check(image, Pace(settings.cache_rate_mib), _teller(settings, what))
            pool_digests.note(image, settings)
        return "verified in the pool"
    limit = limit_bytes(settings, what.fs_type)
    cache = cache_of(settings, what.fs_type)
    if cache.find(image) is not None:
        if not _of_another_boot(cache, image.name):
            return "is there"
        if _verified(settings, what, cache, image, log):
            return "verified"
    cache.make_room(image, limit, promised_bytes(settings, what.fs_type))
    try:
        fetch(image, cache, Pace(settings.cache_rate_mib), _teller(settings, what))
    except NodeFault as error:
        if what.fs_type == RAMDISK:  # the disk is well
            raise SiteFault(error.what, error.why, "see ramdisk_dir in vtorque.yml") from error
        if (disk := broken_disk(error)) and disk.errno in FULL and promised_bytes(settings, what.fs_type):
            # users can bring that about on a node that is well
            hint = "wait for jobs to end, free some space, or lower cache_max"
            raise SiteFault(error.what, error.why, hint) from error
        raise
    return "fetched"


def _verify(settings: NodeSettings, what: Want, log: Log) -> bool:
    """Check that a copy is still what it should be.  If not, it is taken away and wanted anew."""
    cache = cache_of(settings)
    try:
        image = images.find(what.image, settings.pool)
    except UserFault as error:  # its time will come when room is needed
        log(f"{what}: nothing says any more what it should be: {error}", WARNING)
        return True
    if cache.find(image) is not None and _verified(settings, what, cache, image, log):
        log(f"{what}: verified")
        return True
    log(f"{what}: the copy is not what was verified, and is fetched again", WARNING)
    copy_queue.want(settings, what)
    return False


def _verified(settings: NodeSettings, what: Want, cache: Cache, image: images.Image, log: Log) -> bool:
    here = cache.find(image)
    try:
        if here is not None:
            # a copy of ours: nothing of the pool is read, and no rate bounds it
            cache.note_verified(image.name, check(here, Pace(None), _teller(settings, what)))
            return True
    except (ImageFault, NodeFault) as error:  # wrong, or on a part of the disk that cannot be read
        log(f"{what}: the copy is broken, and goes: {error.why}; guests on it: {_guests_on(cache, image)}", WARNING)
        cache.remove(image.name, even_used=True)
    return False


def _of_another_boot(cache: Cache, name: str) -> bool:
    copy = cache.copy(name)
    return copy is None or copy.boot_id != process_id.boot_id()


def _guests_on(cache: Cache, image: images.Image) -> str:
    with contextlib.suppress(OSError, VTorqueError):
        return ", ".join(cache.in_use().get(image.name, ())) or "none"
    return "not known"


def _teller(settings: NodeSettings, what: Want) -> t.Callable[[int, int], None]:
    """Says how far it is, at most once a second."""
    last_at, last_done = time.monotonic(), 0
    copy_queue.report_progress(settings, Progress(what, 0, 0, 0.0))

    def tell(done: int, total: int) -> None:
        nonlocal last_at, last_done
        now = time.monotonic()
        if now - last_at >= TELL_S or done in (0, total):
            rate = (done - last_done) / (now - last_at) if now > last_at and done > last_done else 0.0
            copy_queue.report_progress(settings, Progress(what, done, total, round(rate)))
            last_at, last_done = now, done

    return tell
