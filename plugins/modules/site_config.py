#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin `site_config`, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: site_config
short_description: Check the configuration of the site, and write it
version_added: 1.0.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Writes C(vtorque.yml) out of settings, with every other parameter as a comment that shows its default and meaning.
  - Checks all of it first, where Ansible runs and with the table that the product itself reads the file by. What is
    wrong is named, everything at once, and nothing is written then.
  - The file belongs to root and is writable by root alone.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
attributes:
  check_mode:
    support: full
    details: The settings are checked as otherwise.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  settings:
    description:
      - Parameters by their names; the collection's C(docs/admin/parameters.md) describes each.
      - What is V(null) is not said. A name that no parameter has is a fault.
    type: dict
    required: true
  path:
    description:
      - The file. Its directory must exist.
    type: path
    default: /etc/vtorque/vtorque.yml
  prefix:
    description:
      - What stands before a parameter's name where its value was written, so that faults name it as it is called there.
    type: str
    default: ""
  variables:
    description:
      - Names of other variables of the play. One that is nearly a variable of a role is a fault.
    type: list
    elements: str
    default: []
  role_variables:
    description:
      - The names of the variables that roles read, as lists by what the names of each role begin with.
    type: dict
    default: {}
  write:
    description:
      - V(false) only checks, and asks nothing of the host.
    type: bool
    default: true
  former:
    description:
      - What stands in the file on the host. What it says is then told; nothing of it is kept.
    type: str
"""

EXAMPLES = r"""
---
- name: Write the site's configuration
  mikelangelo.vtorque.site_config:
    settings:
      bridge: br1
      img_default: debian12
      ram_max: 96G
"""

RETURN = r"""
policy:
  description: Every parameter, as the product reads it; sizes in MiB, times in seconds.
  returned: success
  type: dict
  sample: {"bridge": "br1", "ram_max": 98304, "vm_img_dir": "/opt/vm-images"}
prologalarm:
  description: The C($prologalarm) in C(seconds) that the MOM of a node needs for it, and the C(parameter) that decides.
  returned: success
  type: dict
  sample: {"seconds": 300, "parameter": "prologue_timeout"}
former:
  description:
    - What O(former) says, as far as it can be read, C(policy) every parameter and C(said) those that are not at their
      defaults.
    - C(fault) is what is wrong with it, or empty; C(readable) says whether it has the form of a configuration at all.
    - C(by_hand) says whether somebody wrote or edited it; what this module wrote ends with a mark of its content.
  returned: when O(former) is given
  type: dict
  sample: {"policy": {"bridge": "br1"}, "said": {"bridge": "br1"}, "fault": "", "readable": true, "by_hand": false}
faults:
  description: What is wrong with the settings, one sentence each.
  returned: when the settings are not good
  type: list
  elements: str
  sample: ["vcpu_default=3: no such parameter; did you mean vcpus_default?"]
"""
