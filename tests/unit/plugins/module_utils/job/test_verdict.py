# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is told what about a failure."""

from __future__ import annotations

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.verdict import decide_verdict


def test_verdict_never_blames_the_job_for_the_site() -> None:
    refusal = decide_verdict(SiteFault("DHCP", "no answer"), job_id="1.th", start=1, node="t1")
    assert refusal.hint == "this is not a fault of the job: tell the administrator that it failed on t1"
    refusal = decide_verdict(UserFault("vcpus=99", "at most 4"), job_id="1.th", start=1, node="t1")
    assert refusal.hint == ""
