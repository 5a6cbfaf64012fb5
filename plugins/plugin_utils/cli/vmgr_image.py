# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image`: the images that VM jobs can boot."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.job.parameters import Policy
from ...module_utils.node import images
from .json_output import add_json, tell
from .tables import Row, shown, table

HELP = "images that VM jobs can boot"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `vmgr image`."""
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="all images of the pool")
    one = verbs.add_parser("show", help="one image")
    for verb in (listing, one):
        add_json(verb)
    one.add_argument("name", metavar="NAME", help="the image, with or without its revision (debian12@3)")


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Show the pool, or one image.

    Args:
        call: the arguments.
        load: gives the site's policy.

    Returns:
        The exit status.
    """
    pool = pathlib.Path(load().vm_img_dir)
    if call.verb == "list":
        rows = [_row(name, image) for name, image in images.list_images(pool)]
        if call.json:
            tell(call, rows)
        else:
            table(rows)
        return 0
    facts = _facts(images.find(call.name, pool))
    if call.json:
        tell(call, facts)
        return 0
    for name, value in facts.items():
        print(f"{name:<14} {shown(value)}")
    return 0


def _facts(image: images.Image) -> Row:
    return {
        "name": image.name,
        "distro": image.distro,
        "arch": image.arch,
        "virtual_bytes": image.virtual_bytes,
        "format": image.format,
        "boot": image.boot.mode,
        "path": str(image.path),
        **{key: image.record.get(key, "") for key in ("created", "disk_sha256", "description")},
    }


def _row(name: str, image: images.Image | VTorqueError) -> Row:
    if isinstance(image, VTorqueError):
        return {"name": name, "distro": "", "arch": "", "size": "", "description": "", "wrong": str(image)}
    size = f"{image.virtual_bytes / 2**30:.1f}G" if image.virtual_bytes else ""
    description = str(image.record.get("description", ""))
    row = {"name": name, "distro": image.distro, "arch": image.arch, "size": size, "description": description}
    return {**row, "wrong": ""}
