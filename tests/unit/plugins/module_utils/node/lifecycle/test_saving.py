# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of a suspended job go to the node's disk and come back, and what they had is another job's meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import stat
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import disk_space
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain import domain_xml, usage
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import clock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import (
    monitor,
    pausing,
    present_absent,
    room,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import nft_rules, taken_address
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import claims, ledger, pins
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import (
    guest_file,
    pause_order,
    saved_memory,
    slots,
    start_lock,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import memory
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import guest_networks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

from ..placement.pools import Pools

if t.TYPE_CHECKING:
    import pathlib

    from ..conftest import Node

KEY = "7.head.1"
ALL_SAVED = "guest vcn1-2 is saved"


@pytest.fixture
def saving(node: Node) -> Node:
    """A node that saves guests of suspended jobs; two of them are ready, and watched."""
    return watch(node)


def watch(node: Node, again_s: float = 0.05) -> Node:
    """Have it so; what a test patches for the worker is patched before."""
    node.patch.setattr(monitor, "FIRST_PAUSE_S", 0.05)
    node.patch.setattr(monitor, "LAST_PAUSE_S", 0.05)
    node.patch.setattr(pausing, "AGAIN_S", again_s)
    clocks = node.settings.run_dir / "clocks"
    node.patch.setattr(
        clock, "set_clocks", lambda _job, _start, _settings, names, _deadline: clocks.write_text(" ".join(names)) and ()
    )
    holder, asked = (node.settings.run_dir / name for name in ("holder", "asked"))  # files, since a worker looks

    def find_holders(own: dict[str, str], *_more: object) -> dict[str, str]:
        with asked.open("a") as stream:
            stream.write(f"{' '.join(sorted(own))}\n")
        return {min(own): holder.read_text()} if holder.exists() else {}

    node.patch.setattr(taken_address, "find_holders", find_holders)
    node.settings = dataclasses.replace(node.settings, suspend_guests="save", host_ram_mib=0)
    node.begin_watched(2)
    return node


def suspend(node: Node, until: str = ALL_SAVED) -> None:
    pause_order.order_pause(node.settings, KEY)
    node.wait_for_words(until)


def wait_for_memory(node: Node) -> None:
    """Until the first guest is on its way to the disk."""
    memory = saved_memory.memory_file(node.settings.start_dir("7.head", 1) / "vcn1-1")
    node.wait_for_file(memory.parent)
    node.wait_for_file(memory)


def test_guests_of_a_suspended_job_are_on_the_disk_as_roots_alone_and_come_back(saving: Node) -> None:
    suspend(saving)
    assert saving.states() == {}
    start = saving.settings.start_dir("7.head", 1)
    for name in ("vcn1-1", "vcn1-2"):
        memory = saved_memory.memory_file(start / name)
        assert stat.S_IMODE(memory.stat().st_mode) == 0o600
        assert stat.S_IMODE(memory.parent.stat().st_mode) == 0o700
        assert (start / name / "disk.qcow2").exists()
    assert [(one.name, one.complete) for one in saved_memory.read_saved(start)] == [("vcn1-1", True), ("vcn1-2", True)]
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("gone on after")
    assert saving.states() == {"vcn1-1": "running", "vcn1-2": "running"}
    saving.wait_for_file(saving.settings.run_dir / "clocks")
    assert saved_memory.read_saved(start) == ()
    assert "is lost" not in saving.log.read_text()
    assert set(saving.hypervisor.limits) == {"vcn1-1", "vcn1-2"}


def test_guest_that_came_back_is_watched_as_before(saving: Node) -> None:
    suspend(saving)
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("gone on after")
    saving.hypervisor.pause("vcn1-2")
    saving.wait_for_words("guest vcn1-2 is lost: it was paused: an I/O error")
    assert "vcn1-1 is lost" not in saving.log.read_text()


def test_libvirt_restarted_while_guests_are_saved_loses_none(saving: Node) -> None:
    suspend(saving)
    saving.hypervisor.dead = True
    saving.wait_for_words("libvirt was lost")
    pause_order.take_back(saving.settings, KEY)
    saving.hypervisor.dead = False
    saving.wait_for_words("gone on after")
    assert saving.states() == {"vcn1-1": "running", "vcn1-2": "running"}
    assert "is lost:" not in saving.log.read_text()


def lose_libvirt_in_the_middle_of_saving(node: Node) -> None:
    (node.hypervisor.place / "slow").touch()
    pause_order.order_pause(node.settings, KEY)
    wait_for_memory(node)
    node.hypervisor.dead = True
    node.wait_for_words("libvirt was lost")
    node.wait_for_words("guest vcn1-2 may be in memory or on the disk")
    (node.hypervisor.place / "slow").unlink()


def check_return(node: Node) -> None:
    pause_order.take_back(node.settings, KEY)
    node.wait_for_words("gone on after")
    assert node.states() == {"vcn1-1": "running", "vcn1-2": "running"}
    assert "is lost:" not in node.log.read_text()
    assert saved_memory.read_saved(node.settings.start_dir("7.head", 1)) == ()


def test_guest_whose_save_ends_after_libvirt_has_let_go_of_its_clients_is_on_the_disk(saving: Node) -> None:
    """libvirtd that is told to end closes its connections first, and then ends what it has begun."""
    lose_libvirt_in_the_middle_of_saving(saving)
    first = saving.settings.start_dir("7.head", 1) / "vcn1-1"
    saving.hypervisor.finish_save("vcn1-1", saved_memory.memory_file(first))
    saving.hypervisor.dead = False
    saving.wait_for_words(ALL_SAVED)
    saving.wait_for_words("guest vcn1-1 is saved")
    assert saving.states() == {}
    assert [one.complete for one in saved_memory.read_saved(first.parent)] == [True, True]
    assert set(usage.read_before(first.parent.iterdir())) == {"vcn1-1", "vcn1-2"}
    check_return(saving)


def test_guest_that_outlives_a_save_that_libvirt_did_not_end_is_saved_again(saving: Node) -> None:
    lose_libvirt_in_the_middle_of_saving(saving)
    assert saving.states() == {"vcn1-1": "paused", "vcn1-2": "paused"}
    saving.hypervisor.dead = False
    saving.wait_for_words(ALL_SAVED)
    assert saving.states() == {}
    check_return(saving)


@pytest.mark.parametrize("resumed", [False, True])
def test_file_that_libvirt_writes_on_after_a_silence_is_left_alone(saving: Node, resumed: bool) -> None:
    lose_libvirt_in_the_middle_of_saving(saving)
    start = saving.settings.start_dir("7.head", 1)
    asked = saving.hypervisor.place / "vcn1-1.asked"
    (saving.hypervisor.place / "vcn1-1.saving").touch()
    saving.hypervisor.dead = False
    if resumed:
        pause_order.take_back(saving.settings, KEY)
    saving.wait_for_file(asked)
    asked.unlink()
    saving.wait_for_file(asked)
    assert saved_memory.memory_file(start / "vcn1-1").exists()
    saving.hypervisor.finish_save("vcn1-1", saved_memory.memory_file(start / "vcn1-1"))
    (saving.hypervisor.place / "vcn1-1.saving").unlink()
    check_return(saving)


@pytest.mark.parametrize("resumed", [False, True])
def test_guest_that_ended_while_libvirt_was_away_and_is_not_saved_whole_is_lost(saving: Node, resumed: bool) -> None:
    lose_libvirt_in_the_middle_of_saving(saving)
    (saving.hypervisor.place / "vcn1-1.xml").unlink()
    if resumed:
        pause_order.take_back(saving.settings, KEY)
    saving.hypervisor.dead = False
    saving.wait_for_words("guest vcn1-1 is lost: libvirt no longer knows it")
    assert not saved_memory.is_away(saving.settings.start_dir("7.head", 1) / "vcn1-1")


def test_resume_while_libvirt_is_away_in_the_middle_of_saving_loses_none(saving: Node) -> None:
    lose_libvirt_in_the_middle_of_saving(saving)
    pause_order.take_back(saving.settings, KEY)
    saving.hypervisor.dead = False
    check_return(saving)


def test_start_that_ends_while_libvirt_is_away_in_the_middle_of_saving_leaves_nothing(saving: Node) -> None:
    lose_libvirt_in_the_middle_of_saving(saving)
    saving.hypervisor.dead = False
    assert f"directory {KEY}" in saving.absent()
    assert saving.hypervisor.running == {}
    assert not saving.settings.start_dir("7.head", 1).exists()


def test_start_that_ends_while_saved_leaves_no_memory(saving: Node) -> None:
    suspend(saving)
    removed = saving.absent()
    assert f"directory {KEY}" in removed
    assert not saving.settings.start_dir("7.head", 1).exists()
    assert slots.read_slots(saving.settings) == {}


def test_start_that_ends_in_the_middle_of_saving_leaves_nothing(saving: Node) -> None:
    (saving.hypervisor.place / "slow").touch()
    suspend(saving, "paused, as the job is suspended")
    wait_for_memory(saving)
    assert f"directory {KEY}" in saving.absent()
    assert saving.hypervisor.running == {}
    assert not saving.settings.start_dir("7.head", 1).exists()
    assert "not saved" not in saving.log.read_text()


def test_resume_in_the_middle_of_saving_waits_for_its_end(saving: Node) -> None:
    (saving.hypervisor.place / "slow").touch()
    suspend(saving, "paused, as the job is suspended")
    wait_for_memory(saving)
    pause_order.take_back(saving.settings, KEY)
    (saving.hypervisor.place / "slow").unlink()
    saving.wait_for_words("gone on after")
    assert saving.states() == {"vcn1-1": "running", "vcn1-2": "running"}


def test_guest_that_libvirt_does_not_save_stays_paused_and_goes_on(saving: Node) -> None:
    (saving.hypervisor.place / "refuses").write_text("no room left on device")
    suspend(saving, "guest vcn1-2 is paused and not saved: the saving of a domain: no room left on device")
    assert saving.states() == {"vcn1-1": "paused", "vcn1-2": "paused"}
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("gone on after")
    assert saving.states() == {"vcn1-1": "running", "vcn1-2": "running"}


def test_guest_that_does_not_come_back_is_tried_again_and_no_other_goes_on(saving: Node) -> None:
    suspend(saving)
    (saving.hypervisor.place / "refuses").write_text("cannot allocate memory")
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("guest vcn1-2 is still on the disk, it is tried again: the return of a saved domain: cannot")
    assert saving.states() == {}
    (saving.hypervisor.place / "refuses").unlink()
    saving.wait_for_words("gone on after")
    assert saving.states() == {"vcn1-1": "running", "vcn1-2": "running"}


def test_guest_with_virtiofs_stays_in_memory_and_the_record_says_why(saving: Node) -> None:
    for path in saving.hypervisor.place.glob("vcn1-*.xml"):
        shares = "<devices><filesystem type='mount'><driver type='virtiofs'/><target dir='x'/></filesystem>"
        path.write_text(path.read_text().replace("<devices>", shares))
    suspend(saving, "guest vcn1-2 is paused and not saved: it mounts a directory of its node by virtiofs")
    assert saving.states() == {"vcn1-1": "paused", "vcn1-2": "paused"}
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("gone on after")


def test_disk_without_room_for_the_memory_keeps_guests_in_memory(saving: Node) -> None:
    other = saving.settings.start_dir("8.head", 1) / "vcn1-3"
    other.mkdir(parents=True)
    (other / "disk.qcow2").write_bytes(bytes(24) + (1 << 60).to_bytes(8, "big"))
    suspend(saving, "guest vcn1-2 is paused and not saved: its memory of 64 MiB has no room on the disk")
    assert saving.states() == {"vcn1-1": "paused", "vcn1-2": "paused"}


def test_guests_wait_on_the_disk_until_their_cores_are_free_again(saving: Node) -> None:
    guest = saving.settings.start_dir("7.head", 1) / "vcn1-1"
    claims.claim(guest, pins.Pins(((2,), (3,)), (1,)))
    suspend(saving)
    assert claims.read_claims(saving.settings, "8.head.1", ()) == {}
    other = saving.settings.start_dir("8.head", 1) / "vcn1-3"
    other.mkdir(parents=True)
    claims.claim(other, pins.Pins(((3,), (4,)), (5,)))
    saving.hypervisor.place.joinpath("vcn1-3.xml").write_text("<domain><name>vcn1-3</name></domain>")
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("saved guests stay on the disk: cores 3 of cn1 have been given to 8.head.1")
    assert set(saving.states()) == {"vcn1-3"}
    saving.hypervisor.place.joinpath("vcn1-3.xml").unlink()
    saving.wait_for_words("gone on after")
    assert claims.read_claims(saving.settings, "8.head.1", ()) == {1: KEY, 2: KEY, 3: KEY}


def test_guests_wait_on_the_disk_while_others_have_the_memory(saving: Node) -> None:
    suspend(saving)
    place = saving.hypervisor.place / "vbig-1.xml"
    place.write_text("<domain><name>vbig-1</name><memory unit='GiB'>900000</memory></domain>")
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("saved guests stay on the disk: cn1 has 0 MiB of memory for guests now, and 128 MiB are")
    assert not {"vcn1-1", "vcn1-2"} & set(saving.states())
    place.unlink()
    saving.wait_for_words("gone on after")
    assert saving.states() == {"vcn1-1": "running", "vcn1-2": "running"}


def test_guest_whose_address_another_host_has_got_waits_on_the_disk(saving: Node) -> None:
    suspend(saving)
    (saving.settings.run_dir / "holder").write_text("52:54:00:99:99:99")
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("saved guests stay on the disk: 52:54:00:99:99:99 has got the address ")
    assert saving.states() == {}
    (saving.settings.run_dir / "holder").unlink()
    saving.wait_for_words("gone on after")


def test_guests_wait_on_the_disk_where_rules_of_a_further_card_are_gone(saving: Node) -> None:
    """Whoever flushes rules takes those of all cards; a guest on its job's own network is to be held there, too."""
    suspend(saving)
    networks = tuple(
        map(
            guest_networks.read_line,
            ("mine vxlan addresses=172.31.0.0/16", "free bridge bridge=br1 addresses=10.0.0.0/9 confined=no"),
        )
    )
    settings = dataclasses.replace(saving.settings, confine_guests=True, networks=networks)
    for name in ("vcn1-1", "vcn1-2"):
        path = saving.settings.start_dir("7.head", 1) / name / "facts.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "networks": "free=10.1.2.3 mine=172.31.0.1"}))
    held = {"vtq1", "vtq2", "vtq1n2", "vtq2n2"}
    saving.patch.setattr(nft_rules, "list_confined_devices", lambda _settings: tuple(held))
    with saving.hypervisor.connect("") as domains:
        assert room.lack(settings, KEY, domains) == ""
        held.remove("vtq2n2")
        assert room.lack(settings, KEY, domains) == "the network rules of vcn1-2 on cn1 are gone"


def test_guests_return_to_memory_that_is_in_no_pool_of_huge_pages(saving: Node, tmp_path: pathlib.Path) -> None:
    """Nor is what guests have of the pools taken from the rest a second time."""
    suspend(saving)
    pools = Pools(tmp_path / "sys", saving.patch)
    saving.patch.setattr(memory, "node_mib", lambda: 1024)
    saving.patch.setattr(memory, "available_mib", lambda: 900)  # what others have not touched yet counts as available
    other = saving.settings.start_dir("8.head", 1) / "vcn1-3"
    other.mkdir(parents=True)
    guest_file.write_guest_file(
        other, guest_file.GuestFile(0, 3, "vcn1-3", "52:54:00:00:00:03", "u", "t", 0, "d", "b", "slg", 400)
    )
    domain = saving.hypervisor.place / "vcn1-1.xml"
    xml = saved_memory.memory_file(saving.settings.start_dir("7.head", 1) / "vcn1-1").read_text()
    xml = xml.removeprefix("LibvirtQemudSave").replace("vcn1-1", "vcn1-3").replace("7.head", "8.head")
    domain.with_name("vcn1-3.xml").write_text(xml)

    def lack() -> str:
        with saving.hypervisor.connect("") as domains:
            return room.lack(saving.settings, KEY, domains)

    pools.set(0, 248)
    assert lack() == ""
    pools.set(0, 249)
    assert "cn1 has 126 MiB of memory for guests now, and 128 MiB are needed" in lack()
    pages = ledger.Promise(0, {}, {(0, 2048): 200}, True)
    claims.claim(other, pins.Pins(((5,),), (6,)), pages)
    assert lack() == "", "its 400 MiB are in the pool"


def test_saved_guests_do_not_count_for_the_next_job(saving: Node) -> None:
    settings = dataclasses.replace(saving.settings, max_guests=2)
    with pytest.raises(VTorqueError, match="it bears 2, and has 2"):
        slots.take(settings, "8.head.1", 2, Deadline.after(5), busy=lambda _slot: False)
    suspend(saving)
    assert slots.take(settings, "8.head.1", 2, Deadline.after(5), busy=lambda _slot: False) == (3, 4)
    with saving.hypervisor.connect("") as domains:
        assert "bears 2 guests, and has 8.head.1/vcn1-3, 8.head.1/vcn1-4" in room.lack(settings, KEY, domains)


def test_use_of_a_guest_is_that_of_its_whole_life(saving: Node) -> None:
    suspend(saving)
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("gone on after")
    saving.absent()
    one, other = usage.read_use(saving.settings.record_dir("7.head", 1))
    assert (one.name, one.cpu_s, one.read_bytes, one.sent_bytes) == ("vcn1-1", 5.0, 30, 14)
    assert other.cpu_s == 5.0


def test_use_of_a_guest_that_ends_on_the_disk_is_known(saving: Node) -> None:
    suspend(saving)
    saving.absent()
    one, other = usage.read_use(saving.settings.record_dir("7.head", 1))
    assert (one.cpu_s, other.cpu_s) == (2.5, 2.5)


def test_next_start_waits_until_the_memory_is_free(saving: Node) -> None:
    guest = saving.settings.start_dir("8.head", 1) / "vcn1-9"
    guest.mkdir(parents=True)
    saved_memory.order_save(guest, 5 << 20)
    saving.patch.setattr(present_absent, "SAVING_LOOK_S", 0.01)
    worker = start_lock.Lock(start_lock.start_lock(saving.settings, "8.head.1"))
    assert worker.take_now()
    with contextlib.closing(worker):
        asked = saving.ask(saving.part(job_id="9.head"))
        saving.wait_for_file(saving.settings.run_dir / "locks/9.head.1")
        assert not list(saving.hypervisor.place.glob("vcn1-3.xml"))
        saved_memory.memory_file(guest).write_bytes(saved_memory.COMPLETE)
        assert "guests" in asked.answer()


def test_no_start_waits_for_what_nobody_saves_any_more(saving: Node) -> None:
    """The worker was killed while it saved: until its job is deleted, each start of the node would wait a minute."""
    guest = saving.settings.start_dir("8.head", 1) / "vcn1-9"
    guest.mkdir(parents=True)
    saved_memory.order_save(guest, 5 << 20)
    assert saved_memory.on_their_way(saving.settings) == ()
    worker = start_lock.Lock(start_lock.start_lock(saving.settings, "8.head.1"))
    assert worker.take_now()
    with contextlib.closing(worker):
        assert saved_memory.on_their_way(saving.settings) == ("vcn1-9",)


def test_answers_of_the_network_are_not_waited_for_under_the_lock_of_starts(saving: Node) -> None:
    suspend(saving)
    saving.patch.setattr(taken_address, "find_holders", lambda *_asked: {"10.77.0.100": "52:54:00:00:00:99"})
    with saving.hypervisor.connect("") as domains:
        assert room.lack(saving.settings, KEY, domains) == ""
    saving.patch.setattr(room, "Domains", saving.hypervisor.connect)
    assert "52:54:00:00:00:99 has got the address" in room.lack_here(saving.settings, KEY)


def test_return_that_a_disk_refuses_once_is_tried_again(node: Node) -> None:
    """The worker ended with it, and the guests stayed on the disk for ever."""
    fails, order_return = node.settings.run_dir / "fails", saved_memory.order_return

    def refuse(guest: pathlib.Path) -> None:
        if fails.exists():
            fails.unlink()
            raise OSError(errno.EIO, "the disk")
        order_return(guest)

    node.patch.setattr(saved_memory, "order_return", refuse)
    watch(node)
    fails.touch()
    suspend(node)
    pause_order.take_back(node.settings, KEY)
    node.wait_for_words("it is tried again")
    check_return(node)


def test_guests_that_are_wanted_back_while_they_are_saved_return_at_once(node: Node) -> None:
    """What has just been saved has not failed to return."""
    watch(node, again_s=3600.0)
    (node.hypervisor.place / "slow").touch()
    pause_order.order_pause(node.settings, KEY)
    wait_for_memory(node)
    pause_order.take_back(node.settings, KEY)
    (node.hypervisor.place / "slow").unlink()
    check_return(node)


@pytest.mark.parametrize(("old", "asked"), [(False, 1), (True, 2)], ids=["a moment ago", "long ago"])
def test_network_that_has_just_answered_is_not_asked_again(saving: Node, old: bool, asked: int) -> None:
    """All nodes of a job are asked before the first of its guests goes on; each worker would wait a second more."""
    suspend(saving)
    saving.patch.setattr(room, "Domains", saving.hypervisor.connect)
    assert room.lack_here(saving.settings, KEY) == ""
    for guest in saving.settings.start_dir("7.head", 1).iterdir() if old else ():
        then = time.time() - saved_memory.ADDRESSES_BELIEVED_S
        os.utime(guest / saved_memory.DIRECTORY / saved_memory.ADDRESSES, (then, then))
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("gone on after")
    questions = (saving.settings.run_dir / "asked").read_text().splitlines()
    assert len(questions) == asked
    assert len(set(questions)) == 1


def test_address_that_another_host_had_a_moment_ago_is_asked_for_again(saving: Node) -> None:
    suspend(saving)
    saving.patch.setattr(room, "Domains", saving.hypervisor.connect)
    holder = saving.settings.run_dir / "holder"
    holder.write_text("52:54:00:99:99:99")
    assert "has got the address" in room.lack_here(saving.settings, KEY)
    assert "has got the address" in room.lack_here(saving.settings, KEY)
    holder.unlink()
    assert room.lack_here(saving.settings, KEY) == ""


def test_answer_on_a_guest_that_has_returned_meanwhile_makes_nothing(saving: Node) -> None:
    """What were made while its memory is removed, would keep it away for ever."""
    guest = saving.settings.start_dir("7.head", 1) / "vcn1-1"
    with pytest.raises(FileNotFoundError):
        saved_memory.note_free_addresses(guest)
    assert not saved_memory.is_away(guest)
    assert not saved_memory.has_free_addresses(guest)


def test_answer_of_an_earlier_suspension_is_none(saving: Node) -> None:
    guest = saving.settings.start_dir("8.head", 1) / "vcn1-9"
    guest.mkdir(parents=True)
    saved_memory.order_save(guest, 5 << 20)
    saved_memory.note_free_addresses(guest)
    assert saved_memory.has_free_addresses(guest)
    saved_memory.order_save(guest, 5 << 20)
    assert not saved_memory.has_free_addresses(guest)


def test_removal_that_is_done_again_keeps_the_use_of_the_whole_life(saving: Node) -> None:
    suspend(saving)
    pause_order.take_back(saving.settings, KEY)
    saving.wait_for_words("gone on after")
    record, guests = saving.settings.record_dir("7.head", 1), saving.settings.start_dir("7.head", 1)
    before = usage.read_before(guests.iterdir())
    with saving.hypervisor.connect("") as domains:
        usage.save_use(domains, ["vcn1-1", "vcn1-2"], record, None, before)
        usage.save_use(domains, [], record, None, before)
    assert [one.cpu_s for one in usage.read_use(record)] == [5.0, 5.0]


def test_memory_that_is_being_saved_is_promised_room_on_the_disk(saving: Node) -> None:
    guest = saving.settings.start_dir("7.head", 1) / "vcn1-1"
    before = disk_space.read_disk_use(saving.settings.guests_dir).promised_bytes
    saved_memory.order_save(guest, 5 << 20)
    assert disk_space.read_disk_use(saving.settings.guests_dir).promised_bytes == before + (5 << 20)
    saved_memory.memory_file(guest).write_bytes(saved_memory.COMPLETE)
    assert disk_space.read_disk_use(saving.settings.guests_dir).promised_bytes == before


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("<filesystem type='mount'><driver type='virtiofs' queue='1024'/></filesystem>", {"virtiofs"}),
        ("<filesystem type='mount' accessmode='passthrough'/>", {"9p"}),
        ("<hostdev mode='subsystem' type='pci'/>", {"pci"}),
        ("<shmem name='x'/>", {"shared memory"}),
        ("<disk><source protocol='nbd'><host transport='unix'/></source></disk>", {"user disk"}),
        ("<disk><backingStore><source protocol='nbd'/></backingStore></disk>", {"user disk"}),
        ("<disk type='file'><source file='/x'/></disk>", set()),
    ],
)
def test_part_of_a_domain_that_cannot_be_saved_is_found(part: str, name: set[str]) -> None:
    assert domain_xml.unsavable_parts(f"<domain><devices>{part}</devices></domain>") == name


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("<memoryBacking><hugepages/></memoryBacking>", "huge pages"),
        ("<numatune><memnode cellid='0' mode='strict' nodeset='0'/></numatune>", "cells"),
    ],
)
def test_memory_that_the_next_job_may_take_is_not_saved(part: str, name: str) -> None:
    assert domain_xml.unsavable_parts(f"<domain>{part}<devices/></domain>") == {name}
