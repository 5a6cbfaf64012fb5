# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a submission is checked against that guests are created from: images of the pool, users' disks and images."""

from __future__ import annotations

import os
import pathlib

from ...module_utils.errors import SiteFault, VTorqueError
from ...module_utils.job.admission.resolve import ImageFacts, Offers
from ...module_utils.job.config.parameters import Policy
from ...module_utils.node.pool import images


def pool_offers(policy: Policy) -> tuple[Offers, dict[str, str]]:
    """Return the images of the pool, where this host can see them, and what is wrong with those that cannot boot.

    Args:
        policy: says where the pool is.
    """
    arch = (os.uname().machine,)
    try:
        found = dict(images.list_images(pathlib.Path(policy.vm_img_dir)))
    except SiteFault:
        return Offers(None, arch), {}
    broken = {name: str(image) for name, image in found.items() if isinstance(image, VTorqueError)}
    newest: dict[str, str] = {}
    for name in sorted(found, key=lambda name: int(name.partition("@")[2] or 0)):
        newest[name.partition("@")[0]] = name
    # a name without a revision means the newest one, also when that is broken
    broken.update({stem: broken[name] for stem, name in newest.items() if name in broken})
    good = [i for i in found.values() if isinstance(i, images.Image) and i.name.partition("@")[0] not in broken]
    # the nodes may be other machines than this one: a site has images of those that it has, and root asks libvirt
    archs = tuple(dict.fromkeys((*arch, *(image.arch for image in good if image.arch))))
    facts = (ImageFacts(i.name, i.distro, i.arch, i.boot.mode, i.record.get("rdma", "")) for i in good)
    return Offers(tuple(facts), archs), broken


def check_user_disk(path: str) -> None:
    """Inspect a disk of the caller's own as a node will (`-vm disk=`).

    Args:
        path: of the disk.

    Raises:
        VTorqueError: no job could take it along; the class says whose fault it is.
    """
    from ...module_utils.node.storage import user_disk  # 20 ms that only those pay who bring a disk

    user_disk.inspect_disk(path)


def digest_user_image(path: str, policy: Policy) -> str:
    """Inspect an image of the caller's own as a node will (`-vm img=/path`), and return its digest.

    Args:
        path: of the image.
        policy: bounds its size.

    Raises:
        VTorqueError: no guest could boot from it; the class says whose fault it is.
    """
    from ...module_utils.node.pool import user_image  # only who brings an image pays

    return user_image.inspect_image(path, policy.image_max).digest
