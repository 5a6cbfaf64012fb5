#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `seed`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: seed
short_description: Create a NoCloud seed for a cloud-init guest
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Makes a small disk image (ISO 9660, label C(cidata)) from which cloud-init's NoCloud data source tells a guest who
    it is.
  - The image appears whole, with its final owner and mode, or not at all.
  - What a mapping holds comes back exactly when cloud-init reads it. What cannot, such as half of a character, is
    refused, and so is a number where cloud-init takes a text, which is what YAML makes of V(1:30) or V(no) without
    quotes.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - ansible.builtin.files
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows the texts. What may be a secret is hidden, with a digest in its place.
  idempotent:
    support: full
    details: The image is made anew when a text in it differs.
options:
  dest:
    description:
      - The image. Its directory must exist.
      - A file that is there must be a seed.
    type: path
    required: true
  user_data:
    description:
      - The user data, as text, or as a mapping, which becomes cloud-config.
      - A text must begin with a header that cloud-init knows, as C(#cloud-config) or C(#!), or be a MIME message.
        cloud-init would ignore any other, and so it is refused.
      - When it is empty, the seed has user data that says nothing, because cloud-init takes no seed without any.
    type: raw
    required: true
  meta_data:
    description:
      - The meta data, as text or as a mapping.
      - A mapping without C(instance-id) gets one that follows from everything else in the seed, so that cloud-init sets
        the guest up again whenever something has changed. So does what is empty.
    type: raw
    default: {}
  network_config:
    description:
      - The network configuration, as text or as a mapping. Match network cards by their MAC addresses, not by names.
      - Write MAC addresses in quotes. YAML reads C(52:54:00:00:01:03) as a number, which is refused.
      - When it is empty, the seed has none.
    type: raw
  mode:
    description:
      - Permissions of the image.
      - V(0600) unless said otherwise, because user data often holds secrets.
      - Write it in quotes. A number that is no likely mode, as V(600) without quotes, is refused.
seealso:
  - module: mikelangelo.vtorque.domain
"""

EXAMPLES = r"""
---
- name: Tell a guest who it is
  mikelangelo.vtorque.seed:
    dest: /var/lib/libvirt/images/guest-seed.iso
    meta_data:
      local-hostname: guest
    user_data:
      users:
        - name: alice
          ssh_authorized_keys:
            - ssh-ed25519 AAAAC3Nza... alice@example
    network_config:
      version: 2
      ethernets:
        lan:
          match:
            macaddress: "52:54:00:00:01:03"
          dhcp4: true
"""

RETURN = r"""
dest:
  description: The image.
  returned: success
  type: str
  sample: /var/lib/libvirt/images/guest-seed.iso
instance_id:
  description: The instance id that the seed gives, if it was given or made as a mapping.
  returned: success
  type: str
  sample: seed-4f1e2b9a03c55d10
files:
  description: Names of the files in the seed.
  returned: success
  type: list
  elements: str
  sample: [meta-data, network-config, user-data]
fault:
  description: Whose fault a failure is, V(unclear) as a rule.
  returned: failure
  type: str
  sample: unclear
"""

import importlib.util
import json
import os
import pathlib
import re
import secrets
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils.errors import VTorqueError
from ..module_utils.node.seed.nocloud import META_DATA, files_of, is_empty, masked_seed, wrong_mode
from ..module_utils.node.seed.seed import read_iso, write_iso


def attributes(module: AnsibleModule, path: str, changed: bool) -> bool:
    """Give a file the owner and mode that are asked for; true when something had to change."""
    return bool(
        module.set_fs_attributes_if_different(module.load_file_common_arguments(module.params, path=path), changed)
    )


def replace(module: AnsibleModule, files: dict[str, str], dest: pathlib.Path) -> None:
    """Write the image where nobody else looks, give it its owner and mode, and put it in its place."""
    try:
        with tempfile.TemporaryDirectory(dir=dest.parent, prefix=f".{dest.name}.") as private:
            new = pathlib.Path(private) / dest.name
            write_iso(files, new, mode=0o600)
            attributes(module, str(new), False)
            new.replace(dest)
    except OSError as error:
        raise VTorqueError(f"seed {dest}", f"it cannot be written: {error.strerror}") from error


def check_arguments(params: t.Mapping[str, t.Any]) -> None:
    """Refuse what is wrong whatever is to be written.

    Args:
        params: of the module.

    Raises:
        VTorqueError: the directory is missing, or the mode is a number that nobody means.
    """
    dest = pathlib.Path(params["dest"])
    if not os.access(dest.parent, os.W_OK):
        raise VTorqueError(f"dest={dest}", f"{dest.parent} is no directory that can be written to")
    if why := wrong_mode(params["mode"]):
        raise VTorqueError(f"mode={params['mode']}", why, "write it in quotes, with a leading zero: '0600'")


def run(module: AnsibleModule, files: dict[str, str]) -> dict[str, t.Any]:
    """Make the image unless it is there."""
    dest = pathlib.Path(module.params["dest"])
    before = read_iso(dest)
    changed = before != files
    if changed and not module.check_mode:
        replace(module, files, dest)
    if dest.exists():
        changed = attributes(module, str(dest), changed)
    given = module.params["meta_data"]
    result: dict[str, t.Any] = {"changed": changed, "dest": str(dest), "files": sorted(files)}
    result["instance_id"] = instance_id(files) if isinstance(given, dict) or is_empty(META_DATA, given) else ""
    if module._diff:
        header = {"before_header": str(dest), "after_header": str(dest)}
        salt = secrets.token_hex(8)
        result["diff"] = {"before": masked_seed(before, salt), "after": masked_seed(files, salt), **header}
    return result


def instance_id(files: dict[str, str]) -> str:
    """The instance id in meta data that was made from a mapping."""
    found = re.search('^ "instance-id": (".*"),?$', files[META_DATA], re.MULTILINE)
    return str(json.loads(found[1])) if found else ""


def main() -> None:
    """Check the arguments, act and tell."""
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "user_data": {"type": "raw", "required": True, "no_log": True},
            "meta_data": {"type": "raw", "default": {}},
            "network_config": {"type": "raw"},
        },
        add_file_common_args=True,
        supports_check_mode=True,
    )
    if importlib.util.find_spec("pycdlib") is None:
        module.fail_json(msg=missing_required_lib("pycdlib"))
    if module.params["mode"] is None:
        module.params["mode"] = "0600"
    # no_log keeps the user data out of syslog; afterwards every single word of it ("root", "1") would be blanked out
    # wherever it stands in the result, so that the result is made without it instead
    module.no_log_values.clear()
    arguments = {**module.params, "user_data": "not shown"}
    try:
        params = module.params
        check_arguments(params)
        files = files_of(params["user_data"], params["meta_data"], params["network_config"])
        result = run(module, files)
    except VTorqueError as error:
        module.fail_json(msg=str(error), fault=error.fault, invocation={"module_args": arguments})
    module.exit_json(**result, invocation={"module_args": arguments})


if __name__ == "__main__":
    main()
