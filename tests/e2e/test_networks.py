# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests with cards on further networks: reached there by name, and by nobody else; all of it goes with the job."""

from __future__ import annotations

import json
import re

import pytest

from .conftest import Site
from .trouble import left_on

TALK = """
set -eu
echo "networks $VTORQUE_NETWORKS"
for name in $(sort -u "$PBS_NODEFILE"); do
    for network in CHOSEN; do
        ssh "$name-$network" 'echo "$(hostname) heard $(echo $SSH_CONNECTION | sed s/::ffff://g)"' </dev/null
    done
done
"""
"""A guest logs in at each guest of its job, over each network."""


@pytest.mark.full
def test_guests_reach_each_other_on_the_second_network_by_name(site: Site) -> None:
    job_id = site.submit("-vm", "network=fast", "-l", "nodes=2:ppn=1", stdin=TALK.replace("CHOSEN", "fast"))
    ended = site.end(job_id)
    assert ended.exit_status == 0, ended.err
    first, *heard = [re.sub(r" [0-9]+ ([0-9.]+) 22$", r" \1", line) for line in ended.out.splitlines()]
    own = first.removeprefix("networks fast=")
    assert own in ("10.78.1.1", "10.78.2.1"), ended.out
    assert heard == [f"vcn1-1 heard {own} 10.78.1.1", f"vcn2-1 heard {own} 10.78.2.1"]
    shown = json.loads(site.on("fe", "vmgr", "job", "show", "--json", job_id, user="alice").stdout)
    assert {guest["networks"] for guest in shown["guests"]} == {"fast=10.78.1.1", "fast=10.78.2.1"}
    assert left_on(site, "cn1", "cn2") == []
