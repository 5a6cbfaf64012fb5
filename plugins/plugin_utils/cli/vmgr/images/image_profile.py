# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image profile`: where the seconds of an image's boot go, as a table, a picture, and with advice."""

from __future__ import annotations

import argparse
import os
import typing as t

from .....module_utils.errors import UserFault
from .....module_utils.guest_kinds import kind_of
from .....module_utils.node.pool import images
from .....module_utils.node.state.settings import NodeSettings
from .....module_utils.node.trial import boot, boot_profile
from .....module_utils.node.trial.report import report_of
from .....module_utils.system.clock import Deadline
from .....module_utils.text import printable
from ...output.json_output import print_json
from ...output.named_file import write_file
from ...output.progress import waiting
from ...output.tables import table
from .boot_picture import draw
from .image_trial import add_timeout, ended_in_order

if t.TYPE_CHECKING:
    from .....module_utils.node.trial.boot_profile import Profile

EPILOG = """\
The image is booted once on this host, in a guest of its own with no way to any network, which writes into a disk that
is thrown away.  Told is when the kernel, its first file system, udev, the stages of cloud-init, the network and sshd
were at work, and what helps where that is known.  What runs beside other things is counted for each of them.

exit status:
  0  it was up, and told
  2  it was not, or there is no such image
  3  this host cannot boot it

examples:
  vmgr image profile debian12
  vmgr image profile debian12@3 --svg boot.svg
  vmgr image profile debian12 --query "spans[?phase=='udev'].seconds"
"""
SHOWN_ADVICE = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb.

    Args:
        parser: of the verb.
    """
    parser.add_argument("name", metavar="NAME", help="the image, with or without its revision (debian12@3)")
    parser.add_argument("--svg", metavar="FILE", help="as a picture, too; - is standard output, and no table")
    add_timeout(parser)


def run(call: argparse.Namespace, settings: NodeSettings) -> int:
    """Boot the image, and show where the time went.

    Args:
        call: the arguments.
        settings: of this host.

    Returns:
        The exit status.

    Raises:
        VTorqueError: there is nothing to show, and why.
    """
    if os.geteuid() != 0:
        raise UserFault("profile", "boots a guest, and only root may", "call it as root")
    image = images.find(call.name, settings.pool)
    if not kind_of(image.distro).linux:
        raise UserFault(f"image {image.name}", f"a guest of {image.distro} has no cloud-init that could report")
    with waiting(wanted=not call.json) as say, ended_in_order():
        seen = boot.boot(
            image,
            settings.libvirt_uri,
            Deadline.after(call.boot_timeout),
            allow_emulation=settings.allow_emulation,
            tell=say,
        )
    profile = boot_profile.profile_of(seen, report_of(seen))
    if call.svg is not None:
        _draw(call.svg, image.name, profile)
    if call.json:
        print_json(call, {"image": image.name, **profile.to_dict()})
    elif call.svg != "-":
        _print_profile(image.name, profile)
    return 0


def _print_profile(name: str, profile: Profile) -> None:
    print(f"{name}: up after {profile.seconds:.1f} s")
    table(
        [
            {
                "phase": span.phase,
                "what": printable(span.what),
                "from": f"{span.begin_s:.2f}",
                "to": f"{span.end_s:.2f}",
                "seconds": f"{span.seconds:.2f}",
            }
            for span in profile.spans
        ]
    )
    advised = [cost for cost in profile.costs if cost.advice][:SHOWN_ADVICE]
    for cost in advised:
        print(f"{printable(cost.what)} ({cost.seconds:.1f} s): {cost.advice}")
    if profile.emulated:
        print(f"by emulation ({profile.emulated}): it boots faster on a node that has KVM")


def _draw(file: str, name: str, profile: Profile) -> None:
    text = draw(profile, f"boot of {name}: up after {profile.seconds:.1f} s")
    write_file(file, text)
