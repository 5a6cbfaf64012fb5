# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`scontrol suspend` where the site saves guests: they are on the disks of their nodes, and come back."""

from __future__ import annotations

import pytest

from ..trouble import changed, home_server
from .conftest import SlurmSite
from .test_suspended import NODES, begin, resume, states

MEMORY = "ls /var/lib/vtorque/guests/*/*/suspended/memory"


@pytest.mark.full
def test_guests_of_a_suspended_job_are_saved_and_come_back(site: SlurmSite) -> None:
    with home_server(site), changed(site, suspend_guests="save", home_via="nfs", vm_nfs_home="10.77.0.1:/home"):
        number = begin(site)
        site.root("fe", f"scontrol suspend {number}")
        site.wait_for("both guests to be saved", lambda: states(site) == [], seen=lambda: states(site))
        for node in NODES:
            assert len(site.root(node, MEMORY).split()) == 1
        resume(site, number)
        ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "5:0"), ended.out
