#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `image_info`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_info
short_description: Get information about the images of an image pool
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Lists the images of a pool with what their records say, and says of each image that cannot be believed why not.
  - With O(name) looks for one image, the newest revision of it unless one is named, and fails when there is none.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.info_module
  - mikelangelo.vtorque.attributes.pool
options:
  name:
    description:
      - Name of an image, for example V(debian12), V(debian12@3) or V(tiny.qcow2).
      - Write it in quotes where YAML reads something else, as V(12.1) for C(12.10). That is refused.
    type: raw
seealso:
  - module: mikelangelo.vtorque.image
  - module: mikelangelo.vtorque.seed
  - module: mikelangelo.vtorque.domain
"""

EXAMPLES = r"""
---
- name: List the images
  mikelangelo.vtorque.image_info:
  register: pool

- name: Find the newest revision of an image
  mikelangelo.vtorque.image_info:
    name: debian12
  register: found

- name: Say where its disk is
  ansible.builtin.debug:
    var: found.images[0].path
"""

RETURN = r"""
images:
  description: The images by name, those that cannot be believed included.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name in the pool, with its revision where it has one.
      returned: always
      type: str
      sample: debian12@3
    error:
      description: Why the image cannot be used; empty when it can.
      returned: always
      type: str
      sample: ""
    path:
      description: The disk.
      returned: when usable
      type: str
      sample: /opt/vm-images/debian12@3/disk.qcow2
    format:
      description: Format of the disk, V(qcow2) or V(raw).
      returned: when usable
      type: str
      sample: qcow2
    distro:
      description: Family of the image, empty when no record says it.
      returned: when usable
      type: str
      sample: debian
    arch:
      description: Architecture of the image, empty when no record says it.
      returned: when usable
      type: str
      sample: x86_64
    virtual_bytes:
      description: Size in bytes that a guest sees, V(0) when no record says it.
      returned: when usable
      type: int
      sample: 2147483648
    boot:
      description: How the image boots.
      returned: when usable
      type: dict
      contains:
        mode:
          description: By V(bios), V(uefi), or by a V(kernel) that lies beside the disk.
          type: str
          sample: bios
        kernel:
          description: The kernel, or empty.
          type: str
          sample: ""
        initrd:
          description: The initial ram disk, or empty.
          type: str
          sample: ""
        cmdline:
          description: The kernel's command line.
          type: str
          sample: ""
"""

import pathlib
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VTorqueError
from ..module_utils.node.pool.images import Image, find, list_images
from ..module_utils.unquoted import name_text


def image_facts(name: str, image: Image | VTorqueError) -> dict[str, t.Any]:
    """An image as the result tells of it."""
    if isinstance(image, VTorqueError):
        return {"name": name, "error": str(image)}
    boot = image.boot
    return {
        "name": image.name,
        "error": "",
        "path": str(image.path),
        "format": image.format,
        "distro": image.distro,
        "arch": image.arch,
        "virtual_bytes": image.virtual_bytes,
        "boot": {
            "mode": boot.mode,
            "kernel": str(boot.kernel or ""),
            "initrd": str(boot.initrd or ""),
            "cmdline": boot.cmdline,
        },
    }


def main() -> None:
    """Look and tell."""
    module = AnsibleModule(
        argument_spec={
            "pool": {"type": "path", "default": "/opt/vm-images"},
            "name": {"type": "raw"},
            "owner": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    pool, owner = pathlib.Path(module.params["pool"]), module.params["owner"]
    try:
        name = name_text(module.params["name"])
        if name:
            images = [image_facts(name, find(name, pool, owner_uid=owner))]
        else:
            images = [image_facts(*entry) for entry in list_images(pool, owner_uid=owner)]
    except VTorqueError as error:
        module.fail_json(msg=str(error), fault=error.fault)
    module.exit_json(changed=False, images=images)


if __name__ == "__main__":
    main()
