# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same promises in the same words in every module's documentation."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of modules; a module says only how far it supports each."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and say what would change, without changing anything.
  diff_mode:
    description: Returns what changed, or would change in C(check_mode), when in diff mode.
  idempotent:
    description: When run twice in a row with the same arguments, the second run reports no change.
  action_group:
    description: Use C(group/mikelangelo.vtorque.vtorque) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - mikelangelo.vtorque.vtorque
  platform:
    description: Platforms on which the module does its work.
    platforms: linux
    support: full
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details: Changes nothing.
  diff_mode:
    support: N/A
    details: Changes nothing.
  idempotent:
    support: N/A
    details: Changes nothing.
"""

    POOL = r"""
options:
  pool:
    description:
      - The directory of the pool. It and what is in it must belong to O(owner), and nobody else may write there.
    type: path
    default: /opt/vm-images
  owner:
    description:
      - The uid that owns the pool.
    type: int
    default: 0
"""

    LIBVIRT = r"""
attributes:
  action_group:
    description: Use C(group/mikelangelo.vtorque.libvirt) in C(module_defaults) to set O(uri) for all that have it.
    support: full
    membership:
      - mikelangelo.vtorque.vtorque
      - mikelangelo.vtorque.libvirt
options:
  uri:
    description:
      - Where libvirt listens, as a libvirt connection URI.
    type: str
    default: qemu:///system
requirements:
  - libvirt-python (of the distribution, C(python3-libvirt)) on the host that runs the module
"""

    JOB = r"""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  job_id:
    description:
      - The job, as the batch system names it, for example V(4711.head) or V(72[1].head).
    type: str
    required: true
  start:
    description:
      - Which start of the job this is; a job that was requeued has a higher one.
    type: int
    required: true
  run_dir:
    description:
      - Root's directory for this start of the job on the mother superior.
      - Default is C(/run/vtorque/jobs/<job>.<start>).
    type: path
notes:
  - Runs in the Ansible process on the mother superior, as root; nothing is sent to a host but where it is said.
  - When it fails, the reason is also left as C(error.json) in O(run_dir), where the job's hook reads it and decides the
    verdict. The first error of a start stays.
"""
