# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque_follow JOB START`: follows the suspension of a job, for the worker of its guests (`suspension.py`)."""

from __future__ import annotations

import sys

from ...module_utils.job.config import consistency, policy_file
from ...module_utils.state import event_log
from ..bridge import suspension
from ..bridge.node_settings import host_name, policy_loader


def main() -> int:
    """The program; returns its exit status."""
    job_id, start = sys.argv[1:]
    load = policy_loader()
    policy, _broken = policy_file.load_usable(load)
    settings = consistency.log_settings_of(policy)
    event_log.configure(settings, program="vtorque-follow", component="suspension", job=job_id)
    suspension.follow(job_id, int(start), load, host_name())
    return 0


if __name__ == "__main__":
    sys.exit(main())
