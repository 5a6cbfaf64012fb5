# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of two jobs are never beside each other where the site promises so (`side_channels`)."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import DomainFacts, GuestMark
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import room
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import side_channels

from ..system.test_side_channels import host

MINE, THEIRS = "7.head.1", "8.head.1"


class Domains:
    """What libvirt has, in place of a connection."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.found: list[DomainFacts] = []

    def add(self, key: str, state: str, cores: str, *, here: bool = True) -> None:
        job_id, _dot, start = key.rpartition(".")
        name = f"vcn1-{len(self.found) + 1}"
        if here:
            (self.settings.guests_dir / key / name).mkdir(parents=True)
        mark = GuestMark(job_id, int(start), "alice", 0, "cn1")
        cpuset = f" cpuset='{cores}'" if cores else ""
        xml = f"<domain><vcpu{cpuset}>2</vcpu></domain>"
        self.found.append(DomainFacts(name, "u", state, False, (), (), mark, xml))

    def list(self, *, ours: bool = True) -> tuple[DomainFacts, ...]:
        assert ours
        return tuple(self.found)


@pytest.fixture
def domains(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Domains:
    place = host(tmp_path / "sys")
    monkeypatch.setattr(side_channels.find_siblings, "__defaults__", (place,))
    settings = NodeSettings("cn1", 1, state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    found = Domains(settings)
    monkeypatch.setattr(room, "Domains", lambda _uri: contextlib.nullcontext(found))
    return found


def near(domains: Domains, level: str, cores: tuple[int, ...] = ()) -> str:
    settings = dataclasses.replace(domains.settings, side_channels=level)
    return room.find_neighbour(settings, MINE, t.cast(t.Any, domains), cores)


@pytest.mark.parametrize("level", ["exclusive", "strict"])
def test_running_guest_of_another_job_is_a_neighbour_wherever_it_runs(domains: Domains, level: str) -> None:
    domains.add(MINE, "running", "0,4")
    assert near(domains, level) == ""
    domains.add(THEIRS, "running", "1,5")
    assert near(domains, level).startswith("guests of 8.head.1 run on cn1, and share the node with no other job's")
    assert near(domains, "off") == ""


@pytest.mark.parametrize("level", ["exclusive", "cores", "strict"])
def test_guest_that_stands_still_is_no_neighbour(domains: Domains, level: str) -> None:
    domains.add(THEIRS, "paused", "0,4")
    assert near(domains, level, (0, 4)) == ""


def test_domain_that_is_no_guest_of_a_start_here_is_no_neighbour(domains: Domains) -> None:
    domains.add("0.warm.0", "running", "", here=False)
    assert near(domains, "exclusive", (0, 4)) == ""


@pytest.mark.parametrize(
    ("mine", "theirs", "shared"),
    [("0,4", "1,5", False), ("0,4", "4", True), ("0", "4", True), ("0,4", "", True), ("", "1,5", True)],
)
def test_guests_on_a_core_of_another_job_are_neighbours_by_its_siblings(
    domains: Domains, mine: str, theirs: str, shared: bool
) -> None:
    domains.add(MINE, "paused", mine)
    domains.add(THEIRS, "running", theirs)
    assert bool(near(domains, "cores")) is shared


def test_resumed_guests_in_memory_wait_for_a_neighbour_where_the_site_promises_so(domains: Domains) -> None:
    domains.add(MINE, "paused", "0,4")
    domains.add(THEIRS, "running", "0,4")
    assert room.lack_here(domains.settings, MINE) == ""
    for level in ("exclusive", "cores", "strict"):
        settings = dataclasses.replace(domains.settings, side_channels=level)
        assert "guests of 8.head.1 run on cn1" in room.lack_here(settings, MINE)
        domains.found[1] = dataclasses.replace(domains.found[1], state="paused")
        assert room.lack_here(settings, MINE) == ""
        domains.found[1] = dataclasses.replace(domains.found[1], state="running")


def test_start_beside_a_neighbour_is_refused_before_anything_is_made(domains: Domains) -> None:
    domains.add(THEIRS, "running", "0,4")
    settings = dataclasses.replace(domains.settings, side_channels="exclusive")
    with pytest.raises(SiteFault, match=r"8[.]head[.]1 run on cn1"):
        room.check_neighbours(settings, MINE, t.cast(t.Any, domains), (0, 4))
    room.check_neighbours(domains.settings, MINE, t.cast(t.Any, domains), (0, 4))
