# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image add|update|delete|verify`: what changes the pool, or reads the whole of it."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import typing as t

from .....module_utils.errors import UserFault, VTorqueError
from .....module_utils.guest_kinds import OSV_BASE
from .....module_utils.node.pool import images, publish, retire, revision
from .....module_utils.node.pool.checksum import bytes_of, verify
from .....module_utils.state import layout
from .....module_utils.text import format_disk_bytes
from ....bridge.image_need import refuse_needed_images
from ....bridge.node_settings import Configuration
from ...output.json_output import print_json
from ...output.progress import copied
from ...output.tables import table
from . import image_compose, image_facts
from .image_trial import Trial

GUESTS = layout.STATE_DIR / "guests"


def add(call: argparse.Namespace, configuration: Configuration) -> int:
    """`vmgr image add`; returns the exit status."""
    pool = configuration.settings.pool
    images.believe_pool(pool)
    # a name that is wrong is told as that
    revision.check_name(call.name, pool)
    if call.osv_base:
        with image_compose.write_base(call, configuration) as found:
            call.no_boot = True  # nothing could run in it
            return _publish(call, configuration, revision.RevisionSpec(**{**_wanted(call), **found}))
    if not call.file:
        raise UserFault(f"image {call.name}", "its disk is missing", "give FILE, or --osv-base DIR")
    wanted = _wanted(call)
    given = {
        "distro": call.distro or image_facts.distro_of(call.name),
        "description": call.description or "",
        "boot": call.boot or (None if call.kernel else "bios"),
    }
    return _publish(call, configuration, revision.RevisionSpec(**{**wanted, **given}))


def update(call: argparse.Namespace, configuration: Configuration) -> int:
    """`vmgr image update`; returns the exit status."""
    pool = configuration.settings.pool
    images.believe_pool(pool)
    revision.check_name(call.name, pool)
    if revision.newest(call.name, pool) is None:
        images.find(call.name, pool)  # which tells the nearest name
        raise UserFault(f"image {call.name}", "has no record that an update could go on from", "vmgr image add")
    if call.file and images.find(call.name, pool).distro == OSV_BASE:
        raise UserFault(
            f"image {call.name}", "is a base of OSv, and no disk", f"vmgr image add {call.name} --osv-base DIR"
        )
    wanted = _wanted(call)
    if not any(value for key, value in wanted.items() if key not in ("name", "made")):
        raise UserFault(f"image {call.name}", "nothing is to be changed", "give its new disk, or what is said of it")
    return _publish(call, configuration, revision.RevisionSpec(**wanted))


def _wanted(call: argparse.Namespace) -> dict[str, t.Any]:
    paths = {key: pathlib.Path(value) for key in ("kernel", "initrd") if (value := getattr(call, key))}
    return {
        "name": call.name,
        "disk": pathlib.Path(call.file) if call.file else None,
        "format": call.format or "",
        "distro": call.distro,
        "arch": call.arch,
        "description": call.description,
        "boot": call.boot,
        "cmdline": call.cmdline,
        "warm": call.warm,
        "made": f"vmgr image {call.verb}",
        "rdma": call.rdma,
        **paths,
    }


def _publish(call: argparse.Namespace, configuration: Configuration, wanted: revision.RevisionSpec) -> int:
    pool = configuration.settings.pool
    with contextlib.ExitStack() as progress:
        advance = progress.enter_context(copied("adding", revision.bytes_to_read(wanted), wanted=not call.json))
        # a terminal shows one thing at a time
        trial = Trial(call, configuration.settings, progress.close)
        image = publish.publish(
            wanted, pool, advance=advance, max_bytes=configuration.policy.image_max << 20, trial=trial
        )
    tried = {"trial": trial.to_dict()} if wanted.disk else {}
    if call.json:
        print_json(call, {**image_facts.facts(image, {}), **tried})
    else:
        if wanted.disk:
            trial.print_report()
        size = format_disk_bytes(image.virtual_bytes)
        print(f"{image.name} is in the pool ({image.distro}, {image.format}, a disk of {size})")
    return 0


def delete(call: argparse.Namespace, configuration: Configuration) -> int:
    """`vmgr image delete`; returns the exit status."""
    pool = configuration.settings.pool
    found = retire.entries(call.name, pool)
    if not found:
        images.find(call.name, pool)  # which tells the nearest name
    if len(found) > 1 and not call.all:
        raise UserFault(
            f"image {call.name}", f"has {len(found)} revisions: {', '.join(found)}", "name one, or all with --all"
        )
    if not call.force:
        refuse_needed_images(found, configuration)
    gone: list[str] = []
    try:
        for entry in found:
            retire.remove(entry, pool, GUESTS)
            gone.append(entry)
    finally:
        if call.json:
            print_json(call, {"deleted": gone})
        elif gone:
            print(f"deleted {', '.join(gone)}")
    return 0


def verify_images(call: argparse.Namespace, configuration: Configuration) -> int:
    """`vmgr image verify`; returns the exit status."""
    pool = configuration.settings.pool
    asked = call.names or images.list_names(pool)
    found = [(name, _found(name, pool) if not call.names else images.find(name, pool)) for name in asked]
    total = sum(bytes_of(image) for _name, image in found if isinstance(image, images.Image))
    rows = []
    with copied("reading", total, wanted=not call.json) as advance:
        for name, image in found:
            rows.append({"name": name if isinstance(image, VTorqueError) else image.name, **_verdict(image, advance)})
    if call.json:
        print_json(call, rows)
    else:
        table(rows)
    return image_facts.BAD if any(row["wrong"] for row in rows) else 0


def _found(name: str, pool: pathlib.Path) -> images.Image | VTorqueError:
    try:
        return images.find(name, pool)
    except VTorqueError as error:
        return error


def _verdict(image: images.Image | VTorqueError, advance: t.Callable[[int], None]) -> dict[str, str]:
    if isinstance(image, VTorqueError):
        return {"state": "bad", "wrong": str(image)}
    try:
        known = verify(image, advance)
    except VTorqueError as error:
        return {"state": "bad", "wrong": str(error)}
    return {"state": "ok" if known else "readable; no record to compare it with", "wrong": ""}


VERBS = {"add": add, "update": update, "delete": delete, "verify": verify_images}
