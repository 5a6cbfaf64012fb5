#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `domain_info`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_info
short_description: Get information about libvirt domains
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Tells of the domains of a libvirt daemon, or of one of them.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.info_module
  - mikelangelo.vtorque.attributes.libvirt
options:
  name:
    description:
      - Name of a domain. A domain that is not there gives an empty list.
      - Default is all domains.
      - Write it in quotes where YAML reads something else, as V(12.1) for C(12.10). That is refused.
    type: raw
  jobs_only:
    description:
      - Only the guests of batch jobs, which carry vTorque's metadata.
    type: bool
    default: false
seealso:
  - module: mikelangelo.vtorque.domain
"""

EXAMPLES = r"""
---
- name: Look at the guests of batch jobs
  mikelangelo.vtorque.domain_info:
    jobs_only: true
  register: guests
"""

RETURN = r"""
domains:
  description: The domains by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: vn1-3
    uuid:
      description: Its UUID.
      type: str
      sample: 6695eb01-f6a4-8304-79aa-97f2502e193f
    state:
      description: What libvirt says of it.
      type: str
      sample: running
    persistent:
      description: Whether it would still be defined after its end.
      type: bool
      sample: false
    macs:
      description: MAC addresses of its interfaces.
      type: list
      elements: str
      sample: ["52:54:00:00:01:03"]
    disks:
      description: Files of its disks.
      type: list
      elements: str
      sample: [/var/lib/vtorque/guests/4711.head.1/vn1-3/disk.qcow2]
    job:
      description: The job whose guest it is; empty when it is nobody's.
      type: dict
      contains:
        job_id:
          description: The job.
          type: str
          sample: 4711.head
        start:
          description: Which start of the job.
          type: int
          sample: 1
        owner:
          description: The job's user.
          type: str
          sample: alice
        rank:
          description: Position of the guest in the job.
          type: int
          sample: 0
        node:
          description: The node that made it.
          type: str
          sample: n1
    xml:
      description: What libvirt says of it at this moment.
      type: str
      sample: <domain type='kvm'>...</domain>
fault:
  description: Whose fault a failure is, V(node) or V(unclear).
  returned: failure
  type: str
  sample: node
"""

import dataclasses
import importlib.util
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils.errors import VTorqueError
from ..module_utils.node.domain.connection import Domains
from ..module_utils.node.domain.domain_xml import DomainFacts
from ..module_utils.unquoted import name_text


def domain_facts(facts: DomainFacts) -> dict[str, t.Any]:
    """A domain as the result tells of it."""
    return {**dataclasses.asdict(facts), "job": dataclasses.asdict(facts.mark) if facts.mark else {}, "mark": None}


def main() -> None:
    """Look and tell."""
    module = AnsibleModule(
        argument_spec={
            "uri": {"type": "str", "default": "qemu:///system"},
            "name": {"type": "raw"},
            "jobs_only": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if importlib.util.find_spec("libvirt") is None:
        module.fail_json(msg=missing_required_lib("libvirt-python"))
    given = module.params["name"]
    try:
        name = name_text(given)
        with Domains(module.params["uri"], read_only=True) as domains:
            found = domains.list(ours=module.params["jobs_only"])
    except VTorqueError as error:
        module.fail_json(msg=str(error), fault=error.fault)
    chosen = [domain_facts(facts) for facts in found if given is None or name == facts.name]
    module.exit_json(changed=False, domains=[{k: v for k, v in one.items() if k != "mark"} for one in chosen])


if __name__ == "__main__":
    main()
