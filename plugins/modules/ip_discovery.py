#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `ip_discovery`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ip_discovery
short_description: Find the address of a MAC address on this host's networks
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Waits until an address of a MAC address comes to light, in the kernel's neighbour table or in files of DHCP leases.
  - A guest is seen when it speaks to this host, or when the leases of its DHCP server can be read here.
  - Proves nothing. Whoever can speak on that network can claim an address; what a guest is, its host key says.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.info_module
attributes:
  check_mode:
    details: Changes nothing, and waits as usual.
options:
  mac:
    description:
      - The MAC address, in any usual spelling.
      - Write it in quotes. YAML reads C(52:54:00:00:01:03) as a number, which is refused.
    type: str
    required: true
  bridge:
    description:
      - The bridge at which the guest is.
      - Default is any interface.
    type: str
  leases:
    description:
      - Files of DHCP leases to look at too, of dnsmasq or of libvirt's networks (C(/var/lib/libvirt/dnsmasq/*.status)).
      - Of several valid leases of the MAC address the one that lasts longest is taken.
    type: list
    elements: path
    default: []
  timeout:
    description:
      - Seconds to wait.
    type: float
    default: 60
requirements:
  - netaddr on the host that runs the module
  - inotify_simple on the host that runs the module, for O(leases)
seealso:
  - module: mikelangelo.vtorque.domain
"""

EXAMPLES = r"""
---
- name: Wait for a guest's address
  mikelangelo.vtorque.ip_discovery:
    mac: "52:54:00:00:01:03"
    bridge: br0
    timeout: 120
  register: guest
"""

RETURN = r"""
mac:
  description: The MAC address in small letters with colons.
  returned: success
  type: str
  sample: "52:54:00:00:01:03"
address:
  description: The address.
  returned: success
  type: str
  sample: 192.0.2.17
source:
  description: Who says so, V(neighbour) or V(lease).
  returned: success
  type: str
  sample: neighbour
fault:
  description: Whose fault a failure is, V(node), V(site) or V(unclear).
  returned: failure
  type: str
  sample: site
"""

import importlib.util
import pathlib

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils.errors import VTorqueError
from ..module_utils.node.network.addresses import discover, normal_mac


def main() -> None:
    """Wait and tell."""
    module = AnsibleModule(
        argument_spec={
            "mac": {"type": "str", "required": True},
            "bridge": {"type": "str"},
            "leases": {"type": "list", "elements": "path", "default": []},
            "timeout": {"type": "float", "default": 60},
        },
        supports_check_mode=True,
    )
    params = module.params
    needed = ["netaddr", *(["inotify_simple"] if params["leases"] else [])]
    for library in needed:
        if importlib.util.find_spec(library) is None:
            module.fail_json(msg=missing_required_lib(library))
    try:
        found = discover(
            params["mac"],
            bridge=params["bridge"],
            timeout_s=params["timeout"],
            leases=[pathlib.Path(path) for path in params["leases"]],
        )
    except VTorqueError as error:
        module.fail_json(msg=str(error), fault=error.fault)
    module.exit_json(changed=False, mac=normal_mac(params["mac"]), address=found.address, source=found.source)


if __name__ == "__main__":
    main()
