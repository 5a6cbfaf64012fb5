#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin `job_record`, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: job_record
short_description: Permit the shell of a batch job to run it in its guests, or revoke that
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - With O(state=ready) writes what the job's shell needs, readable by the job's owner alone (C(job_key),
    C(known_hosts), C(ready.json)), and last the link by which the shell finds them, named by the process that becomes
    the shell (E(VTORQUE_SHELL)). Nothing is written unless every guest of the plan is known to be ready.
  - With O(state=absent) takes all of that away, the link first, and the plan with its keys.
  - Keeps the job's record, which outlives the job, in O(records_dir).
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.job
attributes:
  diff_mode:
    details: Shows the names of the files, never what is in them.
options:
  state:
    description:
      - Whether the job's shell may run the job.
    type: str
    choices: [ready, absent]
    default: ready
  records_dir:
    description:
      - Where the records of jobs are kept, one directory for each start of a job.
    type: path
    default: /var/lib/vtorque/records
seealso:
  - module: mikelangelo.vtorque.job_plan
  - module: mikelangelo.vtorque.job_guests
"""

EXAMPLES = r"""
---
- name: Let the shell of the job run it
  mikelangelo.vtorque.job_record:
    job_id: "{{ vtorque_job_id }}"
    start: "{{ vtorque_start }}"
  run_once: true

- name: Take that back
  mikelangelo.vtorque.job_record:
    job_id: "{{ vtorque_job_id }}"
    start: "{{ vtorque_start }}"
    state: absent
  run_once: true
"""

RETURN = r"""
removed:
  description: How many files and links were taken away.
  returned: success and O(state=absent), not in check mode
  type: int
  sample: 5
fault:
  description: Whose fault a failure is, V(user), V(image), V(node), V(site) or V(unclear).
  returned: failure
  type: str
  sample: unclear
"""
