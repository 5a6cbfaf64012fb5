# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr selftest on a real Slurm."""

from __future__ import annotations

import json

import pytest

from .conftest import SlurmSite


@pytest.mark.full
def test_root_proves_the_whole_chain_on_each_node_as_a_user(site: SlurmSite) -> None:
    arguments = ("vmgr", "selftest", "--user", "alice", "--each-node", "--json")
    done = site.run("on", "fe", "--", *arguments, timeout_s=900)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    jobs = json.loads(done.stdout)
    assert len(jobs) == 2
    for one in jobs:
        states = {finding["proof"]: finding["state"] for finding in one["findings"]}
        assert set(states.values()) <= {"ok", "none"}, one
        assert {"exit status", "machine", "user", "home", "node file", "leftovers"} <= {
            name for name, state in states.items() if state == "ok"
        }
    assert "selftest" not in site.root("fe", "ls -A /home/alice")
