# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node has, and what guests of jobs have of it: from libvirt, the kernel, leases and the guests' directories."""

from __future__ import annotations

import contextlib
import fcntl
import json
import pathlib
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import occupancy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import leases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.pci import passthrough, usage
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import DomainFacts, read_facts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import claims
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.pins import Pins
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import saved_memory, start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form, node_topology, pci
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output.node_drawing import describe_guest

from .placement.test_topology import TWO_CELLS

DEVICE, KEY = "0000:3b:00.0", "7.head.1"
DOMAIN = "<domain><name>{}</name><memory unit='KiB'>65536</memory><vcpu cpuset='{}'>2</vcpu></domain>"


class Libvirt:
    """A connection to a libvirt that has two cells and these domains."""

    domains: tuple[DomainFacts, ...] = ()

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def __enter__(self) -> t.Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def host_capabilities(self) -> ET.Element:
        return ET.fromstring(TWO_CELLS)

    def list(self) -> tuple[DomainFacts, ...]:
        return self.domains


@pytest.fixture
def settings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> NodeSettings:
    here = NodeSettings(
        "cn1", 1, state_dir=tmp_path / "state", run_dir=tmp_path / "run", pci_classes=(pci.read_line(f"gpu {DEVICE}"),)
    )
    for guest in ("vcn1-1", "vcn1-2", "vcn1-3", "vcn1-4"):
        (here.guests_dir / KEY / guest).mkdir(parents=True)
    monkeypatch.setattr(passthrough, "HOST", usage.Host(tmp_path, tmp_path, tmp_path))
    monkeypatch.setattr(occupancy, "Domains", Libvirt)
    found = tuple(
        read_facts(DOMAIN.format(n, c), "running", False) for n, c in (("vcn1-1", "0-2"), ("vcn1-2", "1,4-5"))
    )
    monkeypatch.setattr(Libvirt, "domains", found)
    return here


def answer(settings: NodeSettings, tmp_path: pathlib.Path) -> node_topology.NodeTopology:
    """What another host reads of the node's answer."""
    sent = json.dumps(form.to_dict(occupancy.read_occupancy(settings, tmp_path / "nodes")))
    return node_topology.topology_from_dict(json.loads(sent))


def test_occupancy_has_cells_pages_as_the_kernel_has_them_and_leased_devices(
    settings: NodeSettings, tmp_path: pathlib.Path
) -> None:
    place = tmp_path / "nodes/node0/hugepages/hugepages-2048kB"
    place.mkdir(parents=True)
    (place / "nr_hugepages").write_text("64\n")
    (place / "free_hugepages").write_text("60\n")
    leases.write_lease(leases.Lease(DEVICE, KEY, 0, "pci", "nvidia"), settings)
    found = answer(settings, tmp_path)
    first, second = found.cells
    assert (first.memory_mib, first.distances, second.number) == (2048, "0:10 1:21", 1)
    assert [core.threads for core in first.cores] == ["0,4", "1,5"]
    assert first.pages == (node_topology.PageFacts(2048, 64, 60),)
    assert found.devices == (node_topology.HeldDevice(DEVICE, "gpu", -1, "leased", KEY),)


def test_occupancy_has_what_guests_have_that_live_or_are_being_made(
    settings: NodeSettings, tmp_path: pathlib.Path
) -> None:
    claims.claim(settings.guests_dir / KEY / "vcn1-1", Pins(((1,), (2, 3)), (0,)))
    claims.claim(settings.guests_dir / KEY / "vcn1-3", Pins(((4,),), (5,)))
    found = {guest.name: guest for guest in answer(settings, tmp_path).guests}
    assert found == {
        "vcn1-1": node_topology.HeldGuest(KEY, "vcn1-1", 64, "1;2,3", "0"),
        "vcn1-2": node_topology.HeldGuest(KEY, "vcn1-2", 64, "", "1,4,5"),
    }
    path = start_lock.start_lock(settings, KEY)
    path.parent.mkdir(parents=True)
    with path.open("w") as lock, contextlib.closing(lock):
        fcntl.flock(lock, fcntl.LOCK_SH)
        found = {guest.name: guest for guest in answer(settings, tmp_path).guests}
    assert found["vcn1-3"] == node_topology.HeldGuest(KEY, "vcn1-3", 0, "4", "5")
    assert found["vcn1-4"] == node_topology.HeldGuest(KEY, "vcn1-4", 0, "", "")


def test_guest_on_the_disk_has_nothing_until_it_is_to_return(settings: NodeSettings, tmp_path: pathlib.Path) -> None:
    """Its cores are another job's by then (`claims.read_claims`): one core would have two owners."""
    guest = settings.guests_dir / KEY / "vcn1-3"
    claims.claim(guest, Pins(((4,),), (5,)))
    saved_memory.order_save(guest, 1 << 20)
    saved_memory.memory_file(guest).write_bytes(saved_memory.COMPLETE)
    path = start_lock.start_lock(settings, KEY)
    path.parent.mkdir(parents=True)
    with path.open("w") as lock, contextlib.closing(lock):
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert "vcn1-3" not in {guest.name for guest in answer(settings, tmp_path).guests}
        saved_memory.order_return(guest)
        assert "vcn1-3" in {guest.name for guest in answer(settings, tmp_path).guests}


def test_occupancy_says_which_cores_are_for_virtual_io(settings: NodeSettings, tmp_path: pathlib.Path) -> None:
    claims.claim(settings.guests_dir / KEY / "vcn1-1", Pins(((0,),), (1, 2), 1))
    guests = {guest.name: guest for guest in answer(settings, tmp_path).guests}
    assert (guests["vcn1-1"].other_cores, guests["vcn1-1"].io_least) == ("1,2", 1)
    assert guests["vcn1-2"].io_least == 0
    assert "other threads on 1-2 (virtual I/O: at least 1 of them)" in describe_guest(guests["vcn1-1"])
