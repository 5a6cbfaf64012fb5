# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what a site's page is made of: records of this host, and what the batch server reports."""

from __future__ import annotations

import os
import time
import typing as t

from .....module_utils.errors import SiteFault
from .....module_utils.job.batch.registry import open_batch
from .....module_utils.job.records import job_record
from .....module_utils.job.request.host_expressions import host_matches
from ....bridge.node_settings import host_name
from .facts import Sources

if t.TYPE_CHECKING:
    from .....module_utils.job.batch.api import BatchJob, BatchNode
    from .....module_utils.job.config.parameters import Policy

MOST_RECORDS = 10_000
"""That are read for a page, the newest first: more take longer than the page may."""
BATCH_S = 10.0


def read_sources(policy: Policy) -> Sources:
    """Read records that the caller may read, and ask the batch server.

    A server that does not answer is reported in the page, which has the records all the same.

    Args:
        policy: says where the batch system is.

    Raises:
        VTorqueError: the records cannot be listed.
    """
    here = host_name()
    records, unread = job_record.read_all(job_record.RECORDS, last=MOST_RECORDS)
    batch = open_batch(policy, front_end=host_matches(policy.regex_fe, here), timeout_s=BATCH_S)
    jobs: tuple[BatchJob, ...] = ()
    nodes: tuple[BatchNode, ...] = ()
    # what a user may read is their own, and root reads everybody's
    fault, public = "", os.geteuid() != 0
    try:
        jobs, nodes = batch.all_jobs(), batch.nodes()
        public = public or batch.server().query_other_jobs
    except SiteFault as error:
        fault = str(error)
    return Sources(time.time(), here, records, unread, jobs, nodes, fault, public)
