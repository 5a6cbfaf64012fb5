# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr: what there is, for people and programs."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.job.parameters import PARAMETERS
from ...module_utils.job.policy import PATH, load
from ...module_utils.job.values import written
from ...module_utils.node import images
from . import messages

PROGRAM = "vmgr"

Row = dict[str, t.Any]


def main() -> int:
    """The program; returns its exit status."""
    return messages.run(PROGRAM, lambda: show(sys.argv[1:]))


def show(words: t.Sequence[str], policy_path: pathlib.Path = PATH) -> int:
    """Do what was asked for.

    Args:
        words: the arguments.
        policy_path: the site's configuration.
    """
    call = _parser().parse_args(words)
    policy = load(policy_path)
    if call.subject == "config":
        values = {name: getattr(policy, name) for name in PARAMETERS}
        _table([
            {"name": name, "value": value, "from": "default" if value == PARAMETERS[name].default else "site"}
            for name, value in values.items()
        ], as_json=call.json)  # fmt: skip
        return 0
    pool = pathlib.Path(policy.vm_img_dir)
    if call.verb == "list":
        _table([_row(name, image) for name, image in images.list_images(pool)], as_json=call.json)
        return 0
    facts = _facts(images.find(call.name, pool))
    if call.json:
        print(json.dumps(facts, indent=2))
        return 0
    for name, value in facts.items():
        print(f"{name:<14} {_shown(value)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Look at the site's images and configuration.")
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="image | config")
    image = subjects.add_parser("image", help="images that VM jobs can boot").add_subparsers(dest="verb", required=True)
    config = subjects.add_parser("config", help="the site's configuration").add_subparsers(dest="verb", required=True)
    verbs = [
        image.add_parser("list", help="all images of the pool"),
        image.add_parser("show", help="one image"),
        config.add_parser("show", help="every parameter, its value, and whether the site has set it"),
    ]
    for verb in verbs:
        verb.add_argument("--json", action="store_true", help="for programs")
    verbs[1].add_argument("name", metavar="NAME", help="the image, with or without its revision (debian12@3)")
    return parser


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


def _shown(value: object) -> str:
    if value is None or value in ("", ()):
        return "-"
    return written(t.cast("str", value))


def _table(rows: t.Sequence[Row], *, as_json: bool) -> None:
    """A table for people, whose columns are there only where some row fills them; or the rows for programs."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        print("none")
        return
    columns = [column for column in rows[0] if any(row[column] not in ("", None) for row in rows)]
    lines = [columns, *([_shown(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in lines) + 2 for i in range(len(columns))]
    for line in lines:
        print("".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
