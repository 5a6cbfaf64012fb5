# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image list|show`: what there is in the pool, and when it was used last."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

from .....module_utils.errors import VTorqueError
from .....module_utils.node.pool import images
from .....module_utils.text import format_disk_bytes, printable
from ...output.json_output import print_json
from ...output.tables import Row, cell_text, table
from .image_facts import facts, moment


def list_images(call: argparse.Namespace, pool: pathlib.Path, used: t.Mapping[str, float]) -> int:
    """`vmgr image list`; returns the exit status."""
    found = images.list_images(pool)
    if call.json:
        print_json(call, [_whole(name, image, used) for name, image in found])
    else:
        table([_row(name, image, used) for name, image in found])
    return 0


def print_image(call: argparse.Namespace, pool: pathlib.Path, used: t.Mapping[str, float]) -> int:
    """`vmgr image show`; returns the exit status."""
    found = facts(images.find(call.name, pool), used)
    if call.json:
        print_json(call, found)
        return 0
    for name, value in {**found, "last_use": moment(found["last_use"], "%Y-%m-%d %H:%M")}.items():
        print(f"{name:<14} {printable(cell_text(value))}")
    return 0


def _whole(name: str, image: images.Image | VTorqueError, used: t.Mapping[str, float]) -> Row:
    known = facts(image, used) if isinstance(image, images.Image) else {}
    row = _row(name, image, used)
    del row["last use"]
    return {**row, **known, "wrong": row["wrong"]}


def _row(name: str, image: images.Image | VTorqueError, used: t.Mapping[str, float]) -> Row:
    row = dict.fromkeys(("name", "distro", "arch", "boot", "size", "created", "last use", "description", "wrong"), "")
    row["name"] = name
    if isinstance(image, VTorqueError):
        return {**row, "wrong": printable(str(image))}
    record = image.record
    return {
        **row,
        "distro": image.distro,
        "arch": image.arch,
        "boot": image.boot.mode if record else "",
        "size": format_disk_bytes(image.virtual_bytes),
        "created": str(record.get("created", ""))[:10],
        "last use": moment(used.get(name), "%Y-%m-%d"),
        "description": printable(str(record.get("description", ""))),
    }


VERBS = {"list": list_images, "show": print_image}
