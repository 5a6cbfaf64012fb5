# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's part of a job: there, there still, gone, and gone whatever happened."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pathlib
import shutil
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import disk_space
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain import usage
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import build
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import addresses
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import seed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import qemu_user, slots, start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import memory
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.layout import job_key, start_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form, node_answers

from .making_steps import STEPS

if t.TYPE_CHECKING:
    from ..conftest import Node

JOB = "7.head"


def test_name_and_mac_follow_from_node_and_slot(node: Node) -> None:
    facts = node.present(node.part(2))
    assert [(f.rank, f.name, f.mac) for f in facts] == [
        (0, "vcn1-1", "52:54:00:01:02:01"),
        (1, "vcn1-2", "52:54:00:01:02:02"),
    ]
    assert {str(path.readlink()) for path in node.settings.slots_dir.iterdir()} == {
        "7.head.1/vcn1-1",
        "7.head.1/vcn1-2",
    }


def test_guests_stay_on_the_cores_and_in_the_memory_of_the_job(node: Node) -> None:
    part = node.part(2)
    present_absent.ensure_guests(part, node.settings, Deadline.after(60), cores=(1, 2, 3, 8))
    for facts in node.hypervisor.running.values():
        root = ET.fromstring(facts.xml)
        assert root.find("vcpu").get("cpuset") == "1-3,8"  # type: ignore[union-attr]
        assert root.find("cputune/emulatorpin").get("cpuset") == "1-3,8"  # type: ignore[union-attr]
    limits = {memory.limit_mib(spec, node.settings.host_ram_mib) for spec in part.guests}
    assert len(limits) == 1
    assert node.hypervisor.limits == dict.fromkeys(("vcn1-1", "vcn1-2"), *limits)


def test_answer_is_of_the_form_that_crosses_the_wire(node: Node) -> None:
    (facts,) = node.present()
    assert form.from_dict(node_answers.GuestFacts, json.loads(json.dumps(form.to_dict(facts)))) == facts
    assert {"disk", "seed", "start"} <= set(facts.timings_s)


def test_every_guest_has_a_word_and_an_instance_of_its_own(node: Node) -> None:
    node.present(node.part(2))
    assert len({report.token for report in node.seeds}) == 2
    assert len({report.instance_id for report in node.seeds}) == 2


def test_second_present_finds_its_guests_and_answers_the_same(node: Node) -> None:
    first = node.present(node.part(2))
    assert node.present(node.part(2)) == first
    assert len(node.seeds) == 2


def test_guest_that_is_not_what_is_asked_for_is_made_anew(node: Node) -> None:
    node.present()
    node.present(node.part(ram_mib=128))
    assert list(node.hypervisor.running) == ["vcn1-1"]
    assert "128" in node.hypervisor.running["vcn1-1"].xml


def test_guest_that_died_is_made_anew(node: Node) -> None:
    node.present()
    node.hypervisor.forget()
    node.present()
    assert list(node.hypervisor.running) == ["vcn1-1"]
    assert sorted(slots.read_slots(node.settings)) == [1]


def test_two_starts_share_nothing(node: Node) -> None:
    """Also when one comes that is over already: it is another's word that says so."""
    first = node.present(node.part(start=2))
    second = node.present()
    assert {first[0].mac, first[0].name}.isdisjoint({second[0].mac, second[0].name})
    node.absent(1)
    assert list(node.hypervisor.running) == [first[0].name]
    assert list(slots.read_slots(node.settings).values()) == ["7.head.2/vcn1-1"]


def test_a_start_ends_those_before_it_and_no_other_jobs(node: Node) -> None:
    """Whoever should have ended them was gone: a MOM, a mother superior."""
    node.present(node.part(job_id="17.head"))
    node.present()
    node.present(node.part(start=2))
    node.present(node.part(2, start=3))
    assert sorted(slots.read_slots(node.settings).values()) == [
        "17.head.1/vcn1-1",
        "7.head.3/vcn1-2",
        "7.head.3/vcn1-3",
    ]
    with pytest.raises(VTorqueError, match="is over"):
        node.present(node.part(start=2))


def test_start_that_ends_meanwhile_disturbs_no_other(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot and its files go between our look at the directory and our look at them."""
    node.present(node.part(start=9))
    going = node.settings.slots_dir / "1"
    gone = node.settings.start_dir(JOB, 9)
    readlink = pathlib.Path.readlink

    def read(path: pathlib.Path) -> pathlib.Path:
        if path == going:
            path.unlink(missing_ok=True)
        return readlink(path)

    def ending(real: t.Callable[[t.Any], t.Any]) -> t.Callable[[t.Any], t.Any]:
        def look(path: t.Any) -> t.Any:
            if str(path) == str(gone):
                shutil.rmtree(gone, ignore_errors=True)
            return real(path)

        return look

    monkeypatch.setattr(pathlib.Path, "readlink", read)
    assert slots.read_slots(node.settings) == {}
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, ending(getattr(os, name)))
    assert disk_space.read_disk_use(node.settings.guests_dir) == disk_space.DiskUse()
    assert not gone.exists()


def test_a_slot_whose_former_guest_is_still_there_is_not_given(node: Node) -> None:
    (addresses.SYS_NET / "vtq1").mkdir(parents=True)
    assert node.present()[0].name == "vcn1-2"


def test_files_are_roots_alone_and_directories_passable(node: Node) -> None:
    node.present()
    directory = node.settings.guests_dir / "7.head.1" / "vcn1-1"
    for path in (directory, directory.parent, directory.parent.parent):
        assert path.stat().st_mode & 0o777 == 0o711
    for name in ("disk.qcow2", "seed.iso", "console.log", "guest.json", "domain.xml", "facts.json"):
        assert (directory / name).stat().st_mode & 0o077 == 0, name


def test_kernel_and_initrd_are_copies_because_libvirt_chowns_them(node: Node, tmp_path: pathlib.Path) -> None:
    (tmp_path / "vmlinuz").write_bytes(b"kernel")
    boot = images.Boot("kernel", tmp_path / "vmlinuz", None, "quiet")
    (tmp_path / "guest").mkdir()
    own = images.copy_boot(images.Image("i@1", tmp_path / "d", "qcow2", boot), tmp_path / "guest")
    assert own == images.Boot("kernel", tmp_path / "guest" / "vmlinuz", None, "quiet")
    assert (tmp_path / "guest" / "vmlinuz").read_bytes() == b"kernel"


def test_absent_leaves_nothing_but_the_console(node: Node) -> None:
    node.present(node.part(2))
    removed = node.absent()
    assert removed == ("domain vcn1-1", "domain vcn1-2", "directory 7.head.1", "slot 1", "slot 2")
    assert node.things == []
    assert present_absent.describe_leftovers(node.settings) == ()
    stored = node.settings.record_dir(JOB, 1) / "vcn1-1.console.log"
    assert stored.read_text() == "Linux version 6.1\n"
    assert {"52:54:00:01:02:01", "52:54:00:01:02:02"} in node.flushed


def test_what_guests_used_is_known_after_they_have_gone(node: Node) -> None:
    """By whomever they were taken away: here the worker, which the tombstone woke."""
    node.present(node.part(2))
    node.absent()
    node.absent()  # which finds nothing any more
    record = node.settings.record_dir(JOB, 1)
    known = {"cpu_s": 2.5, "read_bytes": 15, "sent_bytes": 7}
    assert {one.name: one.known() for one in usage.read_use(record)} == {"vcn1-1": known, "vcn1-2": known}
    assert (record / "used.json").stat().st_mode & 0o007 == 0


def test_hypervisor_that_does_not_say_what_guests_used_keeps_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_words: object) -> t.NoReturn:
        raise VTorqueError("libvirt", "no")

    monkeypatch.setattr(usage, "read_use", fails)
    node.present()
    assert "domain vcn1-1" in node.absent()
    assert node.things == []


def test_absent_is_idempotent_and_bears_nothing_to_do(node: Node) -> None:
    assert node.absent() == ()
    node.present(node.part(start=2))
    node.absent(2)
    assert node.absent(2) == ()


def test_a_present_that_comes_after_absent_makes_nothing(node: Node) -> None:
    node.absent()
    with pytest.raises(VTorqueError, match="is over"):
        node.present()
    assert node.things == []


def test_word_that_a_start_is_over_is_forgotten_when_nobody_can_come_late(node: Node) -> None:
    """A server that lost its database counts from 1 again: its jobs are not those of last week."""
    for start in (1, 2):
        node.absent(start)
    stone = start_lock.tombstone(node.settings, job_key(JOB, 1))
    os.utime(stone, (stone.stat().st_atime, stone.stat().st_mtime - 3 * 86_400))
    node.absent(3)
    assert not stone.exists()
    assert start_lock.tombstone(node.settings, job_key(JOB, 2)).exists()
    assert len(node.present()) == 1


@pytest.mark.parametrize(
    "step",
    ["image", "slot", "address of the node", "overlay", "seed", "domain XML", "forgetting old addresses", "waiting"],
)
def test_absent_after_any_prefix_of_present_leaves_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    room, name = STEPS[step]
    with monkeypatch.context() as patch:
        patch.setattr(room, name, _raise)
        with pytest.raises(KeyboardInterrupt):
            node.present(node.part(2))
    node.absent()
    assert node.things == []


def test_present_ends_when_a_step_raises(node: Node) -> None:
    heard: list[str] = []
    present_absent.ensure_guests(node.part(), node.settings, node.soon(), heard.append)
    assert heard == [
        "libvirt", "what is there already", "slots and directories", "the disk of vcn1-1", "the seed of vcn1-1",
        "the start of vcn1-1", "the start of vcn1-1 by libvirt", "the wait for vcn1-1", "the facts of the guests",
        "the answer",
    ]  # fmt: skip


def test_a_tombstone_is_seen_between_any_two_steps(node: Node) -> None:
    for number in range(10):
        start = number + 1
        steps = iter(range(number, -1, -1))

        def bury(_what: str, start: int = start, steps: t.Iterator[int] = steps) -> None:
            if next(steps, 1) == 0:
                start_lock.bury(node.settings, job_key(JOB, start))

        if number == 9:  # after the last step there is nothing to end
            assert present_absent.ensure_guests(node.part(start=start), node.settings, node.soon(), bury)
        else:
            with pytest.raises(VTorqueError, match="is over"):
                present_absent.ensure_guests(node.part(start=start), node.settings, node.soon(), bury)
        node.absent(start)
    assert node.things == []


def _raise(*_words: object, **_more: object) -> t.NoReturn:
    raise KeyboardInterrupt


def test_libvirt_that_does_not_answer_is_not_nothing(node: Node) -> None:
    node.present()
    node.hypervisor.dead = True
    with pytest.raises(NodeFault):
        node.absent()
    left = present_absent.describe_leftovers(node.settings, JOB)
    assert any(line.startswith("unknown: libvirt") for line in left)
    assert "directory 7.head.1" in left
    assert "slot 1 of 7.head.1" in left


def test_a_qemu_that_libvirt_forgot_is_seen_and_ended(node: Node) -> None:
    node.present()
    disk = node.settings.guests_dir / "7.head.1/vcn1-1/disk.qcow2"
    with node.qemu_that_libvirt_forgot(disk, disk) as process:
        node.hypervisor.forget()
        assert f"process {process.pid} of 7.head.1" in present_absent.describe_leftovers(node.settings, JOB)
        assert f"process {process.pid}" in node.absent()
        assert process.wait(60) == -9


def test_qemu_user_is_saved_before_the_first_guest_is_created(node: Node) -> None:
    """A qemu is known by it when libvirt has forgotten the guest and its directory has gone."""
    node.hypervisor.qemu_ids = (64055, 64055)
    node.settings.run_dir.mkdir()
    node.patch.setattr(build, "create_guests", _raise)
    with pytest.raises(KeyboardInterrupt):
        node.present()
    assert qemu_user.load_uids(node.settings) == {0, 64055}


@pytest.mark.parametrize("opens", ["/dev/null", "known_hosts"])
def test_process_that_only_names_a_guests_disk_is_left_alone(node: Node, opens: str) -> None:
    """Any user of the node can write such arguments, and open what is no secret of a guest's."""
    node.present()
    disk = node.settings.guests_dir / "7.head.1/vcn1-1/disk.qcow2"
    with node.qemu_that_libvirt_forgot(disk, disk.parent / opens) as process:
        assert not any("process" in line for line in present_absent.describe_leftovers(node.settings, JOB))
        assert not any("process" in line for line in node.absent())
        assert process.poll() is None
        process.kill()


def test_left_tells_jobs_and_starts_apart(node: Node) -> None:
    node.present(node.part(start=2))
    node.present(node.part(job_id="17.head"))
    assert all("17.head" not in line for line in present_absent.describe_leftovers(node.settings, JOB))
    assert present_absent.describe_leftovers(node.settings, JOB, 1) == ()
    assert (
        len(present_absent.describe_leftovers(node.settings))
        == len(present_absent.describe_leftovers(node.settings, JOB)) * 2
    )


@pytest.mark.parametrize(
    ("changes", "settings", "fault", "message"),
    [
        ({"hypervisor": "kvm"}, {}, NodeFault, "no usable virtualisation"),
        ({"hypervisor": "kvm"}, {"hypervisor_default": "qemu"}, UserFault, "no usable virtualisation.*hypervisor=qemu"),
        ({}, {"allow_emulation": False}, UserFault, "allows no software emulation"),
        ({"arch": "aarch64"}, {"hypervisor_default": "qemu"}, UserFault, "cannot emulate"),
        ({"arch": "aarch64"}, {"hypervisor_default": "qemu", "arch_default": "aarch64"}, NodeFault, "cannot emulate"),
        ({"fs_type": "ramdisk"}, {}, SiteFault, "ramdisk_dir /ramdisk on cn1.*fs_type=local"),
        ({"fs_type": "local"}, {}, UserFault, "has no record"),
        ({"ram_mib": 2**24}, {}, UserFault, "kept for the hypervisor"),
        ({"image": "tyni"}, {}, UserFault, "did you mean tiny"),
        ({"image": "/home/a/own"}, {}, UserFault, "img=/home/a/own: this site does not allow .*allow_user_images"),
        ({"image": "/home/a/own", "fs_type": "local"}, {"own_images_mib": 64}, UserFault, "is read where it lies"),
        ({"image": "/home/a/own", "fs_type": "ramdisk"}, {"own_images_mib": 64}, UserFault, "is read where it lies"),
        ({}, {"node_number": None}, SiteFault, "node_number"),
        ({}, {"max_guests": 0}, VTorqueError, "it bears 0"),
    ],
)
def test_present_of_an_impossible_part_leaves_nothing(
    node: Node, changes: dict[str, t.Any], settings: dict[str, t.Any], fault: type[VTorqueError], message: str
) -> None:
    node.settings = dataclasses.replace(node.settings, **settings)
    with pytest.raises(fault, match=message) as caught:
        node.present(node.part(**changes))
    assert caught.value.__class__ is fault
    assert node.things == []


def test_a_full_run_keeps_nothing_from_being_taken_away(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty files can still be made there, and hold locks; words find no room."""

    def full(*_words: object) -> t.NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    node.present()
    monkeypatch.setattr(os, "pwrite", full)
    assert node.absent() == ("domain vcn1-1", "directory 7.head.1", "slot 1")
    assert node.things == []


@pytest.mark.parametrize(("number", "fault"), [(errno.ENOSPC, "node"), (errno.EROFS, "node"), (errno.EPERM, "unclear")])
@pytest.mark.parametrize("wrapped", [True, False])
def test_full_disk_is_the_nodes_fault_wherever_it_shows(
    node: Node, monkeypatch: pytest.MonkeyPatch, number: int, fault: str, wrapped: bool
) -> None:
    def full(*_words: object) -> t.NoReturn:
        error = OSError(number, os.strerror(number))
        if wrapped:
            raise VTorqueError("seed.iso was not written") from error
        raise error

    monkeypatch.setattr(seed, "write_iso", full)
    with pytest.raises(VTorqueError) as caught:
        node.present()
    assert caught.value.fault == fault


def test_missing_bridge_is_the_nodes_fault(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_bridge: str) -> int:
        raise NodeFault("bridge br0", "is missing")

    monkeypatch.setattr(addresses, "bridge_index", missing)
    with pytest.raises(NodeFault, match="br0"):
        node.present()
    assert node.things == []


@pytest.mark.parametrize(("job_id", "start"), [("7.head", 1), ("72[1].head.site.org", 12), ("7.h-1.x", 0)])
def test_key_tells_job_and_start(job_id: str, start: int) -> None:
    assert start_of(job_key(job_id, start)) == (job_id, start)


def test_start_of_a_name_without_a_start_is_none() -> None:
    assert start_of("lost+found") is None


def test_absent_sets_its_tombstone_although_libvirt_is_silent(node: Node) -> None:
    node.hypervisor.dead = True
    with pytest.raises(NodeFault):
        node.absent()
    assert start_lock.tombstone(node.settings, job_key(JOB, 1)).exists()
