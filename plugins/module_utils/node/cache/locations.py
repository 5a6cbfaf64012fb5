# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a node keeps copies of images, and how much of them."""

from __future__ import annotations

import shutil

from ...system import files
from ..state.settings import NodeSettings
from . import ramdisk
from .copy_store import Cache
from .disk_space import read_disk_use

POOL, RAMDISK = "sharedfs", "ramdisk"


def cache_of(settings: NodeSettings, fs_type: str = "local") -> Cache:
    """The copies on the node's disk, or in its memory.

    Args:
        fs_type: `local` or `ramdisk`.
    """
    if fs_type == RAMDISK:
        return ramdisk.cache_of(settings)
    return Cache(settings.images_dir / "copies", settings.guests_dir)


def limit_bytes(settings: NodeSettings, fs_type: str = "local") -> int:
    """What all copies may take there together.

    Raises:
        SiteFault: there is no ramdisk that is one.
    """
    if fs_type == RAMDISK:
        return ramdisk.check(settings)
    if settings.cache_bytes is not None:
        return settings.cache_bytes
    files.make_directory(settings.images_dir)
    return int(settings.cache_share * shutil.disk_usage(settings.images_dir).total)


def promised_bytes(settings: NodeSettings, fs_type: str = "local") -> int:
    """What guests may still take of the file system that the copies are on; their overlays are on the disk."""
    return 0 if fs_type == RAMDISK else read_disk_use(settings.guests_dir).promised_bytes
