#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin `job_guests`, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: job_guests
short_description: Make or remove the guests of a batch job on a node
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Runs C(vtorque-node) on the host over Ansible's connection, once, with the host's part of the job's plan on its
    standard input. No module is sent, and nothing else is run there, so that the ssh key can be restricted to this one
    command.
  - The node checks the request for itself, and its answer is checked here.
  - A node that returns from O(state=present) has guests that are ready; one that returns from O(state=absent) has
    nothing of the job left.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.job
attributes:
  check_mode:
    support: full
    details: Reports from the plan and from the last answer of the node, which is not asked.
  diff_mode:
    support: full
    details: Shows the guests of the node.
  idempotent:
    support: full
options:
  state:
    description:
      - Whether the node's guests of this job should be there, ready, or gone.
      - V(absent) works without a plan, too.
    type: str
    choices: [present, absent]
    default: present
  timeout:
    description:
      - Seconds that the node may take.
      - Default is what is left until E(VTORQUE_DEADLINE), which the job's hook sets.
    type: float
  prefix:
    description:
      - Where vTorque is installed on the nodes.
      - Default is where it is installed on the mother superior, when Ansible runs from there, else V(/opt/vtorque).
    type: path
seealso:
  - module: mikelangelo.vtorque.job_plan
  - module: mikelangelo.vtorque.job_record
"""

EXAMPLES = r"""
---
- name: Make the guests of each node
  mikelangelo.vtorque.job_guests:
    job_id: "{{ vtorque_job_id }}"
    start: "{{ vtorque_start }}"

- name: Remove them again within a minute
  mikelangelo.vtorque.job_guests:
    job_id: "{{ vtorque_job_id }}"
    start: "{{ vtorque_start }}"
    state: absent
    timeout: 60
"""

RETURN = r"""
guests:
  description: The guests of this node.
  returned: success and O(state=present), not in check mode
  type: list
  elements: dict
  contains:
    rank:
      description: Position of the guest in the job, 0 first.
      type: int
      sample: 0
    name:
      description: Host name of the guest.
      type: str
      sample: vn1-0
    mac:
      description: MAC address of the guest.
      type: str
      sample: 52:54:00:00:01:00
    address:
      description: Address of the guest.
      type: str
      sample: 192.0.2.17
removed:
  description: How many things the node took away.
  returned: success and O(state=absent), not in check mode
  type: int
  sample: 3
fault:
  description: Whose fault a failure is, V(user), V(image), V(node), V(site) or V(unclear).
  returned: failure
  type: str
  sample: node
"""
