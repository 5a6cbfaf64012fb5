# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job array on a node that refuses its members: it eats two of them, and spoils nothing for those after it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from .conftest import Site
from .trouble import WELL, check_held, check_refused, drop, image, replace

ON_ONE = ("-l", "nodes=cn1:ppn=2")
WINDOW_S = 60.0


def members_of(site: Site, array: str) -> dict[str, str]:
    """The states of an array's members."""
    jobs = ET.fromstring(site.root("fe", f"qstat -x -f '{array}'")).iter("Job")
    states = {job.findtext("Job_Id", ""): job.findtext("job_state", "") for job in jobs}
    return {job_id: state for job_id, state in states.items() if job_id != array}


def noted(site: Site) -> list[tuple[float, str]]:
    """What the node has noted of its refusals, in their order: seconds since its boot, and the member."""
    fields = [line.split() for line in site.root("cn1", "cat /run/vtorque/refused").splitlines()]
    return [(float(when), member) for when, member in fields]


@pytest.mark.full
def test_refusing_node_ends_two_members_within_a_minute_and_the_others_are_held(site: Site) -> None:
    """Which ended and which are held follows from the node's own notes; `qrls` runs them when the image is mended."""
    with image("spoilt") as place:
        disk = place / "disk.qcow2"
        good = disk.read_bytes()
        replace(disk, b"?" * len(good))
        array = site.submit("-t", "0-7", *ON_ONE, "-vm", "img=spoilt", stdin="echo RAN\n")
        site.wait_for("a word on each member", lambda: set(members_of(site, array).values()) <= set("CH"))
        states, notes = members_of(site, array), noted(site)
        assert len(states) == 8
        for when, member in notes:
            before = [one for one, _other in notes if when - WINDOW_S < one < when]
            assert states[member] == "H" or len(before) < 2, (member, states, notes)
        held = sorted(member for member, state in states.items() if state == "H")
        assert held
        for member in states.keys() - set(held):
            check_refused(site.end(member), "spoilt")
        for member in held:
            facts = check_held(site, member, "spoilt", "members of this array away within a minute")
            assert facts["start_count"] == "1"
        assert "ALARM" in site.root("cn1", "cat /var/lib/vtorque/log/hooks.log")
        assert site.nodes()["cn1"] == WELL
        replace(disk, good)
        # what the node has noted of this array holds up no other one, nor its own members
        other = site.submit("-t", "0-1", *ON_ONE, stdin="echo RAN\n")
        assert site.on("fe", "qrls", held[0], user="alice").returncode == 0
        for member in (held[0], *(other.replace("[]", f"[{index}]") for index in (0, 1))):
            ended = site.end(member)
            assert (ended.exit_status, ended.out) == (0, "RAN\n")
            starts = int(site.facts(member)["start_count"])
            assert starts == (2 if member == held[0] else 1)
            assert "verdict" not in json.loads(site.stored("cn1", member, starts))
        drop(site, *held[1:])
