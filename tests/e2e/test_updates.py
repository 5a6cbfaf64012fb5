# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Security updates of guests that come to nothing: the job runs all the same, and its record tells why.

What they do where there are some is tried in a Debian guest (test_debian.py).
"""

from __future__ import annotations

import json

import pytest

from .conftest import Site
from .trouble import NODES, changed


@pytest.mark.both
@pytest.mark.full
def test_a_guest_that_cannot_be_updated_runs_its_job(site: Site) -> None:
    """Every guest of every node says so for itself."""
    with changed(site, ("fe", *NODES), security_updates=True, security_updates_timeout=20, timeout=200):
        ended = site.job(*site.batch.two, "-vm", "img=tiny", stdin="hostname\n")
    assert (ended.exit_status, ended.err) == (0, "")
    guests = json.loads(site.stored(ended.node, ended.job_id))["guests"]
    assert sorted(guest["node"] for guest in guests) == list(NODES)
    message = "this image has no package manager that is known"
    for guest in guests:
        report = guest["updates"]
        assert (report["outcome"], report["packages"], report["reason"]) == ("failed", 0, message)
    printed = site.on(ended.node, "vmgr", "job", "show", ended.job_id, user="alice").stdout
    assert "failed, 0 packages" in printed
    assert f"security updates of {guests[0]['name']}: {message}" in printed
