# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of a running job are saved for a checkpoint and go on; a later start has them back as they were."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    CheckpointFault,
    SiteFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain import domain_xml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import clock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import monitor, pausing
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import returning
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import taken_address
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import claims
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import (
    checkpoint_store,
    pause_order,
    saved_memory,
    slots,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import NodePart

from ...conftest import Connection

if t.TYPE_CHECKING:
    from ...conftest import Node

FIXTURES = pathlib.Path(__file__).parents[6] / "fixtures"
JOB, KEY = "7.head", "7.head.1"
NAMES = ("vcn1-1", "vcn1-2")


@pytest.fixture
def running(node: Node, tmp_path: pathlib.Path) -> Node:
    """A node whose two guests are ready and watched; its site pauses guests of suspended jobs, and has a store."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    for module, name, value in (
        (monitor, "FIRST_PAUSE_S", 0.05), (monitor, "LAST_PAUSE_S", 0.05), (pausing, "AGAIN_S", 0.05),
        (clock, "set_clocks", lambda *_words, **_more: ()), (taken_address, "find_holders", lambda *_words: {}),
    ):  # fmt: skip
        node.patch.setattr(module, name, value)
    node.settings = dataclasses.replace(node.settings, checkpoint_dir=store)
    node.begin_watched(2)
    return node


def store_guests(node: Node) -> pathlib.Path:
    """Save the guests of the first start into a checkpoint, and let them go on."""
    store = t.cast(pathlib.Path, node.settings.checkpoint_dir)
    assert pause_order.order_checkpoint(node.settings, KEY, time.time() + 600)
    node.wait_for_words("guest vcn1-2 is saved")
    place = checkpoint_store.job_dir(store, JOB)
    for name in NAMES:
        guest = node.settings.start_dir(JOB, 1) / name
        checkpoint_store.save_guest(guest, place / "1.new" / name, node.soon())
    checkpoint_store.commit(store, JOB, 1, {"version": 1, "job_id": JOB})
    pause_order.take_back(node.settings, KEY)
    node.wait_for_words("gone on after")
    return place / "1"


def second_start(node: Node, place: pathlib.Path) -> NodePart:
    part = node.part(2, start=2)
    guests = tuple(
        dataclasses.replace(
            spec,
            saved_in=str(place / name),
            saved_digest=checkpoint_store.digest_of(place / name / checkpoint_store.FILES),
        )
        for spec, name in zip(part.guests, NAMES, strict=True)
    )
    return dataclasses.replace(part, guests=guests)


def test_guests_saved_for_a_checkpoint_go_on_and_none_is_lost(running: Node) -> None:
    store_guests(running)
    assert running.states() == dict.fromkeys(NAMES, "running")
    assert "is lost" not in running.log.read_text()


def test_guests_go_on_by_themselves_when_nobody_ends_a_checkpoint(running: Node) -> None:
    """Its mother superior is gone."""
    assert pause_order.order_checkpoint(running.settings, KEY, time.time() + 0.5)
    running.wait_for_words("paused, as the job is suspended")
    running.wait_for_words("gone on after")
    assert running.states() == dict.fromkeys(NAMES, "running")
    assert "is lost" not in running.log.read_text()


def test_later_start_has_the_guests_back_with_their_names_and_addresses(running: Node) -> None:
    place = store_guests(running)
    before = dict(running.hypervisor.running)
    running.absent()
    assert running.states() == {}
    made = running.present(second_start(running, place))
    assert running.states() == dict.fromkeys(NAMES, "running")
    assert [(one.rank, one.name) for one in made] == [(0, "vcn1-1"), (1, "vcn1-2")]
    for name, facts in running.hypervisor.running.items():
        assert (facts.uuid, facts.macs) == (before[name].uuid, before[name].macs)
        assert facts.mark is not None
        assert (facts.mark.job_id, facts.mark.start) == (JOB, 2)
        assert all("/7.head.2/" in disk for disk in facts.disks if "/7.head." in disk)
        assert "7.head.1/" not in facts.xml
        directory = running.settings.start_dir(JOB, 2) / name
        assert (directory / checkpoint_store.RETURNED).exists()
        assert not saved_memory.is_away(directory)
    assert set(slots.read_slots(running.settings).values()) == {f"7.head.2/{name}" for name in NAMES}
    # asked again, they are found
    assert running.present(second_start(running, place)) == made
    assert any("vcn1-1" in thing for thing in running.absent(2))
    assert running.states() == {}


def test_returned_guest_holds_no_cores_of_its_former_node(running: Node) -> None:
    for name in NAMES:
        claimed = running.settings.start_dir(JOB, 1) / name / claims.FILE
        claimed.write_text(json.dumps({"vcpus": ["2"], "others": "3", "io_least": 1}))
        assert claims.read_pins(claimed.parent) is not None
    place = store_guests(running)
    running.absent()
    made = running.present(second_start(running, place))
    assert [(one.vcpu_cores, one.other_cores, one.io_least) for one in made] == [("", "", 0)] * 2
    for name in NAMES:
        assert claims.read_pins(running.settings.start_dir(JOB, 2) / name) is None


def test_guest_returns_to_another_node_whose_slots_are_taken_otherwise(running: Node) -> None:
    place = store_guests(running)
    running.absent()
    other = dataclasses.replace(running.settings, node_name="cn2", node_number=3)
    running.settings = other
    (other.slots_dir).mkdir(parents=True, exist_ok=True)
    (other.slots_dir / "1").symlink_to("9.head.1/vcn2-1")
    made = running.present(dataclasses.replace(second_start(running, place), node="cn2"))
    assert [one.name for one in made] == list(NAMES)
    devices = {
        name: domain_xml.parse(facts.xml).find("devices/interface/target").get("dev")  # type: ignore[union-attr]
        for name, facts in running.hypervisor.running.items()
    }
    assert devices == {"vcn1-1": "vtq2", "vcn1-2": "vtq3"}
    for name, slot in zip(NAMES, (2, 3), strict=True):
        xml = running.hypervisor.running[name].xml
        assert str(other.agent_socket(slot)) in xml
        assert running.hypervisor.running[name].mark.node == "cn2"  # type: ignore[union-attr]
    (other.slots_dir / "1").unlink()
    running.absent(2)


def test_name_of_a_saved_guest_is_given_to_no_other(running: Node) -> None:
    store_guests(running)
    running.absent()
    part = dataclasses.replace(running.part(1), job_id="8.head")
    assert [one.name for one in running.present(part)] == ["vcn1-3"]


@pytest.mark.parametrize("name", ["memory", "disk.qcow2", "guest.json"])
def test_checkpoint_that_was_edited_does_not_return(running: Node, name: str) -> None:
    place = store_guests(running)
    running.absent()
    part = second_start(running, place)
    with (place / "vcn1-1" / name).open("r+b") as stream:
        stream.seek(1)
        stream.write(b" ")
    with pytest.raises((CheckpointFault, VTorqueError), match="not what was saved"):
        running.present(part)
    assert running.states() == {}


def test_checkpoint_of_another_job_or_elsewhere_does_not_return(running: Node, tmp_path: pathlib.Path) -> None:
    place = store_guests(running)
    running.absent()
    part = second_start(running, place)
    for wrong in (tmp_path / "elsewhere/1/vcn1-1", place.parent.parent / "8.head/1/vcn1-1"):
        guests = (dataclasses.replace(part.guests[0], saved_in=str(wrong)), part.guests[1])
        with pytest.raises(VTorqueError, match=r"is none of job 7\.head"):
            running.present(dataclasses.replace(part, guests=guests))
    t.cast(pathlib.Path, running.settings.checkpoint_dir).chmod(0o755)
    with pytest.raises(SiteFault, match="mode 0700"):
        running.present(part)


def test_guest_whose_address_another_host_has_does_not_return(running: Node) -> None:
    place = store_guests(running)
    running.absent()
    running.patch.setattr(taken_address, "find_holders", lambda own, *_more: {min(own): "52:54:00:99:99:99"})
    with pytest.raises(VTorqueError, match="52:54:00:99:99:99 has got it"):
        running.present(second_start(running, place))
    assert running.states() == {}


def test_guest_returns_to_no_node_whose_qemu_does_not_know_its_machine(running: Node) -> None:
    for name in NAMES:  # as libvirt resolves the name on Debian 13
        domain = running.hypervisor.place / f"{name}.xml"
        domain.write_text(domain.read_text().replace("machine='q35'", "machine='pc-q35-10.0'"))
    place = store_guests(running)
    running.absent()
    here = domain_xml.parse((FIXTURES / "libvirt/machines-9.0.0-qemu-7.2.22.xml").read_text())
    running.patch.setattr(Connection, "host_capabilities", staticmethod(lambda: here))
    why = r"vcn1-1 cannot return here: the QEMU of cn1 does not know its machine pc-q35-10\.0: another release began it"
    with pytest.raises(VTorqueError, match=why):
        running.present(second_start(running, place))
    assert running.states() == {}


def test_guest_under_kvm_returns_to_the_same_processor_alone(running: Node) -> None:
    place = store_guests(running) / "vcn1-1"
    returning._check_processor(place)
    (place / checkpoint_store.PROCESSOR).chmod(0o600)
    (place / checkpoint_store.PROCESSOR).write_text("another\n")
    with pytest.raises(VTorqueError, match="another processor"):
        returning._check_processor(place)
    assert json.loads((place / "facts.json").read_text())["name"] == "vcn1-1"
