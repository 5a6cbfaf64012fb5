# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures of the documentation that the product draws as text."""

from __future__ import annotations

import pathlib

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import html_report
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.job_record import JobRecord
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.job import headline
from ansible_collections.mikelangelo.vtorque.tests import made_up_job


def job_report() -> str:
    """Return what `vmgr job report --svg` draws of a job that does not exist."""
    record = JobRecord(made_up_job.JOB, 1, pathlib.Path("/nonexistent"), "", made_up_job.record())
    return html_report.picture(record, headline(record))
