#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin `job_guests`, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: job_guests
short_description: Create or remove the guests of a batch job on its nodes
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Speaks with C(vtorque-node) on all hosts of the play at the same time, and so runs once for all of them. The program
    gets the host's part of the job's plan on its standard input, and answers. A host whose C(ansible_connection) is
    V(local) is this machine; the others are reached by C(ssh) as root, under C(ansible_host) or their name.
  - No module is sent, and nothing else is run there, so that the ssh key can be restricted to this one command.
  - When the guests of all nodes are ready, each is told of the others, in the same conversation.
  - The node checks the request for itself, and its answer is checked here.
  - After O(state=present) all guests are ready and know each other; after O(state=absent) no node has anything of the
    job left. When nodes fail, the error is the one that decides for the job; the others are told with it.
  - Ansible's C(forks) is the number of nodes that make their guests at the same time.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.job
attributes:
  check_mode:
    details: Reports from the plan and from the last answers of the nodes, which are not asked.
  diff_mode:
    details: Shows the guests of each node.
options:
  state:
    description:
      - Whether the guests of this job should be there, ready, or gone.
      - V(absent) works without a plan, too.
    type: str
    choices: [present, absent]
    default: present
  timeout:
    description:
      - Seconds that the nodes may take.
      - Default is what is left until E(VTORQUE_DEADLINE), which the job's hook sets.
    type: float
  prefix:
    description:
      - Where vTorque is installed on the nodes.
      - Default is where it is installed on the mother superior, when Ansible runs from there, else V(/opt/vtorque).
    type: path
  config:
    description:
      - The site's configuration, which says what comes before the user's first login in their guests.
      - The nodes read their own, each for itself.
    type: path
    default: /etc/vtorque/vtorque.yml
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
  description: The guests of each node, by the node's name; of each its C(rank), C(name), C(mac) and C(address).
  returned: success and O(state=present), not in check mode
  type: dict
  sample:
    n1:
      - rank: 0
        name: vn1-1
        mac: "52:54:00:00:01:01"
        address: 192.0.2.17
removed:
  description: How many things the nodes took away.
  returned: success and O(state=absent), not in check mode
  type: int
  sample: 3
fault:
  description: Whose fault a failure is, V(user), V(image), V(node), V(site) or V(unclear).
  returned: failure
  type: str
  sample: node
"""
