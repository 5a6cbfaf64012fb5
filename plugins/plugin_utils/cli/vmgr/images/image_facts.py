# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `vmgr image` shows of an image."""

from __future__ import annotations

import argparse
import datetime
import typing as t

from .....module_utils.errors import UserFault
from .....module_utils.guest_kinds import DISTROS
from .....module_utils.node.pool import images
from ...output.tables import Row

BAD = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say what an image is.

    Args:
        parser: of a verb that brings an image into the pool.
    """
    parser.add_argument("--description", metavar="TEXT", help="what people read about it")
    parser.add_argument("--distro", choices=DISTROS, help="its family (as NAME begins)")
    parser.add_argument("--arch", metavar="ARCH", help="its architecture (this machine's)")
    parser.add_argument("--rdma", choices=("yes", "no"), help="whether its guests have verbs, for vrdma=true")
    parser.add_argument("--format", choices=images.FORMATS, help="what FILE is (told from its header)")
    parser.add_argument("--boot", choices=("bios", "uefi"), help="how it boots (bios)")
    parser.add_argument("--kernel", metavar="FILE", help="it boots this kernel, kept beside its disk")
    parser.add_argument("--initrd", metavar="FILE", help="of that kernel")
    parser.add_argument("--cmdline", metavar="TEXT", help="of that kernel")
    parser.add_argument("--warm", action="store_true", help="its guests can start warm (install_warm.sh)")


def facts(image: images.Image, used: t.Mapping[str, float]) -> Row:
    """What is known of an image.

    Args:
        image: of the pool.
        used: when each was used last.
    """
    keys = ("created", "who", "made", "source", "disk_sha256", "disk_bytes", "description", "rdma", "warm")
    return {
        "name": image.name,
        "distro": image.distro,
        "arch": image.arch,
        "virtual_bytes": image.virtual_bytes,
        "format": image.format,
        "boot": image.boot.mode,
        "path": str(image.path),
        **{key: image.record.get(key, "") for key in keys},
        "last_use": used.get(image.name),
    }


def moment(seconds: float | None, form: str) -> str:
    """A moment as people say it, "" for none.

    Args:
        seconds: since the epoch.
        form: for strftime.
    """
    try:
        return datetime.datetime.fromtimestamp(seconds).strftime(form) if seconds else ""
    except (OverflowError, ValueError):
        return ""


def distro_of(name: str) -> str | None:
    """The family that an image's name begins with.

    Args:
        name: of the image.

    Raises:
        UserFault: it begins with none.
    """
    found = next((distro for distro in DISTROS if name.lower().startswith(distro)), None)
    if found is None:
        raise UserFault(f"image {name[:80]!a}", "of which distribution is it?", f"--distro {'|'.join(DISTROS)}")
    return found
