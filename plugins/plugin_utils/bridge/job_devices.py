# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices of this node the batch system has given to a job.

Its word decides where the site says that it counts them (`resource=` in `pci_classes`), and it is the server's own:
files and variables of the job can be its user's.
"""

from __future__ import annotations

import dataclasses

from ...module_utils.errors import SiteFault
from ...module_utils.job.batch.api import BatchJob
from ...module_utils.job.batch.host_match import same_host
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.wire.pci import PciClass


def with_granted(job: BatchJob, settings: NodeSettings) -> NodeSettings:
    """Return the node's settings with what the batch system has given to a job, in the classes that it counts.

    Args:
        job: the batch server's word.
        settings: this node's.

    Raises:
        SiteFault: it gave a device that the site does not list.
    """
    classes = tuple(_granted(pci_class, job, settings.node_name) for pci_class in settings.pci_classes)
    return dataclasses.replace(settings, pci_classes=classes)


def _granted(pci_class: PciClass, job: BatchJob, node: str) -> PciClass:
    if not pci_class.resource:
        return pci_class
    found = []
    for one in job.granted:
        host, resource, index = one.split("/")
        if resource != pci_class.resource or not same_host(host, node):
            continue
        if int(index) >= len(pci_class.addresses):
            what = f"{pci_class.resource} {index} of {node}, given to job {job.job_id}"
            why = f"class {pci_class.name} lists {len(pci_class.addresses)} devices there, counted from 0"
            raise SiteFault(what, why, "list as many in pci_classes as the batch system counts")
        found.append(pci_class.addresses[int(index)])
    return dataclasses.replace(pci_class, granted=tuple(found))
