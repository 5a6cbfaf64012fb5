#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `image`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image
short_description: Add images to an image pool, or remove them
version_added: 1.0.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - With O(state=present) the newest revision of an image is what is wanted; where it is not, the next revision is
    published. A revision never changes, and appears whole, by one rename.
  - A disk is refused that names other files, is encrypted, cut off, or of another format than qcow2 and raw.
  - With O(state=absent) a revision, or all of them, are gone.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.pool
attributes:
  check_mode:
    support: full
    details: Reads the disk to tell whether it is the same, and looks at its header; damage behind it is found when it
      is published.
  diff_mode:
    support: full
    details: Shows what the records say.
  idempotent:
    support: full
options:
  state:
    description:
      - Whether the image is to be in the pool.
    type: str
    choices: [present, absent]
    default: present
  name:
    description:
      - Name of the image, for example V(debian12). With O(state=absent) also a revision of it, for example
        V(debian12@3), or an image without a record, for example V(old.img).
      - Write it in quotes where YAML reads something else, as V(12.1) for C(12.10). That is refused.
    type: raw
    required: true
  src:
    description:
      - The disk, a file on the host that runs the module.
      - Without it the image must be there, and its disk stays.
    type: path
  format:
    description:
      - What O(src) is. Told from its header when it is not given; a raw disk must then have a table of partitions.
    type: str
    choices: [qcow2, raw]
  description:
    description:
      - What people read about the image. As before when it is not given.
    type: str
  distro:
    description:
      - Family of the image, for example V(debian). As before when it is not given.
    type: str
  arch:
    description:
      - Architecture of the image. As before when it is not given, and at first that of the host.
    type: str
  rdma:
    description:
      - Whether guests of the image have verbs (C(vrdma=true)). A job that wants them is refused if it is V(false).
      - As before when it is not given, and at first not known.
    type: bool
  boot:
    description:
      - How the disk boots by itself. As before when it is not given, and at first V(bios).
    type: str
    choices: [bios, uefi]
  kernel:
    description:
      - A kernel that boots O(src) and is kept beside it.
    type: path
  initrd:
    description:
      - The initial ram disk of O(kernel).
    type: path
  cmdline:
    description:
      - The command line of O(kernel).
    type: str
  warm:
    description:
      - Can guests of O(src) start warm? Its system then has the program that C(install_warm.sh) of the role
        C(guest_image) puts there.
      - Of the disk. Without O(src) it is as before, unless it is said.
    type: bool
    default: false
  inputs:
    description:
      - A digest of what the image was made of, for who makes it again. Kept in the record.
    type: str
    default: ""
  made:
    description:
      - How the image was made, in words. Kept in the record.
    type: str
    default: the module image
  max_mib:
    description:
      - Greatest disk that is taken, as a guest sees it, in MiB.
    type: int
    default: 2097152
  guests_dir:
    description:
      - Where guests of this host have their disks. An image on which one stands is not removed.
    type: path
    default: /var/lib/vtorque/guests
  owner:
    description:
      - The uid that owns the pool, which must be that of the module's process.
notes:
  - Only guests and programs of the host that runs the module keep an image from being removed. C(vmgr image delete)
    asks the batch server for the jobs of all nodes, too.
requirements:
  - qemu-img on the host that runs the module
seealso:
  - module: mikelangelo.vtorque.image_info
"""

EXAMPLES = r"""
---
- name: Publish an image that was made elsewhere
  mikelangelo.vtorque.image:
    name: rocky9
    src: /srv/images/rocky9.qcow2
    distro: rocky
    boot: uefi
    description: Rocky 9, Open MPI 4.1

- name: Remove one revision
  mikelangelo.vtorque.image:
    name: rocky9@1
    state: absent
"""

RETURN = r"""
image:
  description: Name of the newest revision; empty where it would be made, or was removed.
  returned: success
  type: str
  sample: rocky9@2
path:
  description: Its disk, or empty.
  returned: success
  type: str
  sample: /opt/vm-images/rocky9@2/disk.qcow2
removed:
  description: What was, or would be, removed.
  returned: success
  type: list
  elements: str
  sample: []
fault:
  description: Whose fault a failure is, V(user), V(image) or V(site) as a rule.
  returned: failure
  type: str
  sample: image
"""

import json
import pathlib
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VTorqueError
from ..module_utils.node.pool import images, publish, retire, revision
from ..module_utils.unquoted import name_text

SHOWN = (
    "name",
    "revision",
    "distro",
    "arch",
    "description",
    "rdma",
    "boot",
    "format",
    "disk_sha256",
    "virtual_bytes",
    "warm",
)


def present(params: dict[str, t.Any], *, check: bool) -> dict[str, t.Any]:
    """Have the newest revision be what is wanted."""
    pool, owner = pathlib.Path(params["pool"]), params["owner"]
    keys = ("name", "distro", "arch", "description", "boot", "cmdline", "made", "inputs", "warm")
    disk, kernel, initrd = (pathlib.Path(params[key]) if params[key] else None for key in ("src", "kernel", "initrd"))
    rdma = {None: None, True: "yes", False: "no"}[params["rdma"]]
    wanted = revision.RevisionSpec(
        disk=disk,
        kernel=kernel,
        initrd=initrd,
        format=params["format"] or "",
        rdma=rdma,
        **{key: params[key] for key in keys},
    )
    images.believe_pool(pool, owner_uid=owner)
    revision.check_name(wanted.name, pool)
    before = revision.newest(wanted.name, pool, owner_uid=owner)
    old = _text_of(before.record if before else {})
    if before and revision.same(wanted, before):
        return _result_of(before, changed=False, before=old, after=old)
    if check:
        record = publish.foreseen(wanted, before, max_bytes=params["max_mib"] << 20)
        return _result_of(None, changed=True, before=old, after=_text_of(record))
    image = publish.publish(wanted, pool, max_bytes=params["max_mib"] << 20, owner_uid=owner)
    return _result_of(image, changed=True, before=old, after=_text_of(image.record))


def absent(params: dict[str, t.Any], *, check: bool) -> dict[str, t.Any]:
    """Have a revision, or all of them, be gone."""
    pool, guests = pathlib.Path(params["pool"]), pathlib.Path(params["guests_dir"])
    images.believe_pool(pool, owner_uid=params["owner"])
    found = retire.entries(params["name"], pool)
    for entry in found:
        if check:
            retire.refuse_used(entry, pool, guests)
        else:
            retire.remove(entry, pool, guests, owner_uid=params["owner"])
    before = "".join(f"{entry}\n" for entry in found)
    return {**_result_of(None, changed=bool(found), before=before, after=""), "removed": list(found)}


def _result_of(image: images.Image | None, *, changed: bool, before: str, after: str) -> dict[str, t.Any]:
    return {
        "changed": changed,
        "image": image.name if image else "",
        "path": str(image.path) if image else "",
        "removed": [],
        "diff": {"before": before, "after": after},
    }


def _text_of(record: t.Mapping[str, t.Any]) -> str:
    known = {key: record[key] for key in SHOWN if key in record}
    return json.dumps(known, indent=1, ensure_ascii=False) + "\n" if known else ""


def main() -> None:
    """Check the arguments, act and tell."""
    text, path = {"type": "str"}, {"type": "path"}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "name": {"type": "raw", "required": True},
            "src": path,
            "format": {"type": "str", "choices": ["qcow2", "raw"]},
            "description": text,
            "distro": text,
            "arch": text,
            "rdma": {"type": "bool"},
            "boot": {"type": "str", "choices": ["bios", "uefi"]},
            "kernel": path,
            "initrd": path,
            "cmdline": text,
            "warm": {"type": "bool", "default": False},
            "inputs": {"type": "str", "default": ""},
            "made": {"type": "str", "default": "the module image"},
            "max_mib": {"type": "int", "default": 2097152},
            "pool": {"type": "path", "default": "/opt/vm-images"},
            "guests_dir": {"type": "path", "default": "/var/lib/vtorque/guests"},
            "owner": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    try:
        module.params["name"] = name_text(module.params["name"])
        result = (present if module.params["state"] == "present" else absent)(module.params, check=module.check_mode)
    except VTorqueError as error:
        module.fail_json(msg=str(error), fault=error.fault)
    if not module._diff:
        del result["diff"]
    module.exit_json(**result)


if __name__ == "__main__":
    main()
