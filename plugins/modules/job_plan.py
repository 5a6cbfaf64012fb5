#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin `job_plan`, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: job_plan
short_description: Decide which guests of a batch job run on which node
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Asks the batch system for a job, checks its request against the site's policy, and writes the plan of its guests as
    C(plan.json) into O(run_dir), which only root can read.
  - A plan of the same start that decides the same stays, with its keys. All that a plan decides counts, such as a disk
    of the user's or what they add to their guests; the keys, which are made anew for each plan, do not.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.job
attributes:
  check_mode:
    details: Asks the batch system and makes the plan, but writes nothing.
  diff_mode:
    details: Shows the guests of each node, without keys, and with a digest of all that was decided.
options:
  config:
    description:
      - The site's configuration.
    type: path
    default: /etc/vtorque/vtorque.yml
  nodefile:
    description:
      - The job's node file, which must say what the batch server says.
      - Default is C(aux/<job id>) in the site's C(torque_home).
    type: path
seealso:
  - module: mikelangelo.vtorque.job_guests
  - module: mikelangelo.vtorque.job_record
"""

EXAMPLES = r"""
---
- name: Decide what is made where
  mikelangelo.vtorque.job_plan:
    job_id: "{{ vtorque_job_id }}"
    start: "{{ vtorque_start }}"
  run_once: true
"""

RETURN = r"""
nodes:
  description: The nodes that make guests for the job.
  returned: success
  type: list
  elements: str
  sample: [n1, n2]
guests:
  description: How many guests the job has on all nodes together.
  returned: success
  type: int
  sample: 2
fault:
  description: Whose fault a failure is, V(user), V(image), V(node), V(site) or V(unclear).
  returned: failure
  type: str
  sample: user
"""
