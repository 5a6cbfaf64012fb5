# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of images in memory: a tmpfs of the site's, and the memory that it takes from guests."""

from __future__ import annotations

import pathlib
import shutil
import stat

from ...errors import SiteFault
from ..pool.images import Image
from ..state.settings import NodeSettings
from .copy_store import Cache, sources_of

MOUNTS = pathlib.Path("/proc/self/mountinfo")


def place_of(settings: NodeSettings) -> pathlib.Path:
    """Where the copies are."""
    return settings.ramdisk_dir / "vtorque"


def check(settings: NodeSettings, mounts: pathlib.Path = MOUNTS) -> int:
    """Check that the site's ramdisk is one.

    Args:
        settings: says where it is.
        mounts: the kernel's word.

    Returns:
        Its size in bytes.

    Raises:
        SiteFault: it is not there, is no tmpfs, has no bound, or could have been written by others.
    """
    place = settings.ramdisk_dir
    what = f"ramdisk_dir {place} on {settings.node_name}"
    hint = f"mount -t tmpfs -o size=...,mode=755 vtorque {place} there, or fs_type=local"
    try:
        facts = place.lstat()
        size = shutil.disk_usage(place).total
    except OSError as error:
        raise SiteFault(what, error.strerror or str(error), hint) from error
    if not stat.S_ISDIR(facts.st_mode) or _kind_of(place, mounts) != "tmpfs":
        raise SiteFault(what, "is no tmpfs", hint)
    if not size:
        raise SiteFault(what, "has no bound: images could take all memory", hint)
    if facts.st_uid != 0 or facts.st_mode & 0o022:
        raise SiteFault(what, "can be written by others than root: not believed", hint)
    return size


def _kind_of(place: pathlib.Path, mounts: pathlib.Path) -> str:
    """The kind of file system that a directory is on; the last that was mounted there counts."""
    kind, longest = "", -1
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        before, _dash, after = line.partition(" - ")
        where = pathlib.Path(before.split()[4].replace("\\040", " "))
        if place.is_relative_to(where) and len(where.parts) >= longest:
            kind, longest = after.split()[0], len(where.parts)
    return kind


def used_bytes(settings: NodeSettings) -> int:
    """The memory that copies take now."""
    return sum(copy.held_bytes for copy in cache_of(settings).copies()) if place_of(settings).is_dir() else 0


def missing_bytes(image: Image, settings: NodeSettings) -> int:
    """The memory that a copy of an image will take that is not here yet.

    Raises:
        VTorqueError: it has no record, or the pool does not tell.
    """
    return 0 if cache_of(settings).find(image) is not None else sum(source.size for source in sources_of(image))


def make_way(settings: NodeSettings, keep: frozenset[str], at_most_bytes: int) -> int:
    """Take away copies that no guest stands on, until they take no more memory than there is for them.

    Args:
        settings: NodeSettings of this node.
        keep: names of images that are wanted now.
        at_most_bytes: for all of them.

    Returns:
        The memory that copies take now.
    """
    cache = cache_of(settings)
    held = used_bytes(settings)
    if held <= at_most_bytes:
        return held
    for copy in cache.copies():
        if held <= at_most_bytes:
            break
        if copy.image not in keep:
            try:
                cache.remove(copy.image)
            except SiteFault:  # a guest is on it
                continue
            held -= copy.held_bytes
    return held


def cache_of(settings: NodeSettings) -> Cache:
    """The copies in memory."""
    return Cache(place_of(settings), settings.guests_dir, "memory")
