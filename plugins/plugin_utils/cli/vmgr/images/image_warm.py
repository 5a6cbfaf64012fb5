# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image warm`: the templates from which guests of this node start warm."""

from __future__ import annotations

import argparse
import os
import time
import typing as t

from .....module_utils.errors import UserFault, VTorqueError
from .....module_utils.guest_kinds import kind_of
from .....module_utils.node.cache import standing_copies, wait_for_copy
from .....module_utils.node.domain.connection import Domains
from .....module_utils.node.pool import images
from .....module_utils.node.state.settings import NodeSettings
from .....module_utils.node.warm import clone_xml, making, template
from .....module_utils.system.clock import Deadline
from .....module_utils.text import format_bytes, format_mib, printable
from ....bridge import warm_size
from ....bridge.node_settings import Configuration
from ...output.json_output import print_json
from ...output.progress import waiting
from ...output.tables import table
from .image_trial import add_timeout, ended_in_order

EPILOG = """\
A template is a guest of nobody that has booted and was saved.  Guests of its image, vCPUs and memory start from it
where the site has warm starts (warm_start).  It is made on the node where it is wanted, as root: a guest boots without
a user, without a key and without a network, at the lowest priority; its memory goes to the node's disk; one guest is
made from it, and then it appears.  What is not said is the site's default.  The image must say that it can be warm.

A template is void with another revision of the image, another qemu, libvirt, kernel or processor, and after warm_days.
Of more than warm_max those go that were not used longest.

  list               templates of this node
  make [NAME]        make one for an image (the site's default image)
  remove KEY|NAME    take away the templates whose key begins so, or those of an image

exit status:
  0  done
  2  there is no such image or template, or the image cannot be warm
  3  this node cannot make it

examples:
  vmgr image warm list
  vmgr image warm make debian12 --vcpus 2 --ram 4G
  vmgr image warm remove debian12
"""
ACTIONS = ("list", "make", "remove")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb.

    Args:
        parser: of the verb.
    """
    parser.add_argument("action", choices=ACTIONS, help="what is to be done")
    parser.add_argument("name", metavar="NAME", nargs="?", help="an image, or the key of a template")
    for key, meaning in warm_size.ASKED.items():
        parser.add_argument(f"--{key.replace('_', '-')}", help=f"{meaning} (the site's default)")
    add_timeout(parser)


def run(call: argparse.Namespace, configuration: Configuration) -> int:
    """Do what was asked for; see `image.run`.

    Raises:
        VTorqueError: it could not be done, and nothing was changed.
    """
    if os.geteuid() != 0:
        raise UserFault("warm", "templates are root's alone", "call it as root")
    if call.action == "make":
        return _make(call, configuration)
    if call.action == "remove":
        return _remove(call, configuration.settings)
    return _list(call, configuration.settings)


def _list(call: argparse.Namespace, settings: NodeSettings) -> int:
    found = template.list_templates(settings)
    rows = [_facts(one, settings) for one in found if isinstance(one, template.Template)]
    broken = [str(one) for one in found if isinstance(one, VTorqueError)]
    if call.json:
        print_json(call, {"templates": rows, "broken": broken})
        return 0
    table([
        {
            "key": row["key"][:8],
            "image": row["image"],
            "vcpus": row["vcpus"],
            "ram": format_mib(row["ram_mib"]),
            "disk": format_bytes(row["bytes"]),
            "made": _moment(row["made"]),
            "used": _moment(row["used"]),
            "good": "no" if row["old"] else "yes",
        }
        for row in rows
    ])  # fmt: skip
    for text in broken:
        print(printable(text))
    return 0


def _facts(one: template.Template, settings: NodeSettings) -> dict[str, t.Any]:
    record = one.record
    return {
        "key": record.key,
        "image": record.image,
        "vcpus": record.vcpus,
        "ram_mib": record.ram_mib,
        "bytes": one.bytes,
        "made": record.made,
        "seconds": round(record.seconds, 2),
        "used": one.used,
        "old": template.is_old(one, settings),
    }


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _make(call: argparse.Namespace, configuration: Configuration) -> int:
    policy, settings = configuration.policy, configuration.settings
    name = call.name or policy.img_default
    if not name:
        raise UserFault("warm make", "this site has no default image", "name one")
    image = images.find(name, settings.pool)
    if not image.record.get("warm") or not kind_of(image.distro).linux or image.boot.mode == "uefi":
        why = "boots by UEFI" if image.boot.mode == "uefi" else "does not say that it can be warm"
        raise UserFault(f"image {image.name}", why, "docs: warm-start, image-building")
    shape = warm_size.shape_of(image, {key: getattr(call, key) for key in warm_size.ASKED}, policy)
    deadline = Deadline.after(call.boot_timeout)
    with (
        waiting(wanted=not call.json) as say,
        ended_in_order(),
        _base(image, shape.fs_type, settings, deadline, say) as base,
        Domains(settings.libvirt_uri) as domains,
    ):
        wanted = making.TemplateSpec(clone_xml.spec_of(base, shape.size, settings), base)
        made = making.make(wanted, settings, domains, deadline, say)
    facts = _facts(made, settings)
    if call.json:
        print_json(call, facts)
    else:
        took = f"{format_bytes(facts['bytes'])}, made in {facts['seconds']:.1f} s"
        print(
            f"template {made.record.key[:8]} of {image.name} ({facts['vcpus']} vCPUs, {facts['ram_mib']} MiB): {took}"
        )
    return 0


def _base(
    image: images.Image, fs_type: str, settings: NodeSettings, deadline: Deadline, say: t.Callable[[str], None]
) -> t.ContextManager[images.Image]:
    """The image as guests stand on it here; a copy is fetched first."""
    if fs_type != "sharedfs":
        standing_copies.wait(image, fs_type, settings, deadline, say)
    return wait_for_copy.base_of(image, fs_type, settings)


def _remove(call: argparse.Namespace, settings: NodeSettings) -> int:
    if not call.name:
        raise UserFault("warm remove", "which?", "the beginning of a key, or an image; vmgr image warm list")
    keys = [
        place.name
        for place in (settings.warm_dir.iterdir() if settings.warm_dir.is_dir() else ())
        if template.is_key(place.name) and _is_meant(place, call.name)
    ]
    if not keys:
        raise UserFault(f"template {call.name[:80]!a}", "is not on this node", "vmgr image warm list")
    removed = [key for key in sorted(keys) if template.remove(key, settings)]
    if call.json:
        print_json(call, {"removed": removed})
    else:
        print(f"removed: {', '.join(key[:8] for key in removed)}")
    return 0


def _is_meant(place: t.Any, name: str) -> bool:
    if len(name) >= 4 and place.name.startswith(name):
        return True
    try:
        image = template.read(place).record.image
    except (OSError, VTorqueError):
        return False
    return name in (image, image.partition("@")[0])
