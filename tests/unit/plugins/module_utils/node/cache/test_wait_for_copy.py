# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests' disks stand on: copies that are waited for, on the disk and in memory, and whose fault it is."""

from __future__ import annotations

import dataclasses
import errno
import pathlib
import subprocess
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    ImageFault,
    NodeFault,
    SiteFault,
    UserFault,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import copy_queue, copy_worker, ramdisk
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.copy_queue import Want
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.locations import cache_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.overlay_bases import base_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import read_facts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import disk_check
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import overlay
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import memory as memory_of_node
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id

from ..conftest import JOB, Node
from ..pool import image_pool

COPIED = {"image": "disk@1"}


@pytest.fixture
def filled(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whoever wants an image finds the work done at once; what was done."""
    arguments: list[str] = []
    image_pool.add(node.settings.pool, "disk@1")
    node.settings = dataclasses.replace(node.settings, cache_bytes=64 << 20)

    def take_line(text: str, level: str = "info", component: str = "") -> None:
        arguments.append(text)

    monkeypatch.setattr(copy_queue, "ensure_worker", lambda settings: copy_worker.work_off(settings, take_line))
    return arguments


@pytest.fixture
def nobody(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody fetches anything."""
    image_pool.add(node.settings.pool, "disk@1")
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)


def base(node: Node, guest: str = "vcn1-1") -> pathlib.Path | None:
    return base_of(node.settings.start_dir(JOB, 1) / guest / "disk.qcow2")


def test_guests_stand_on_the_nodes_copy_which_is_fetched_once(node: Node, filled: list[str]) -> None:
    node.present(node.part(2, fs_type="local", **COPIED))
    copy = node.settings.images_dir / "copies/disk@1"
    assert (base(node), base(node, "vcn1-2")) == (copy / "disk.img", copy / "disk.img")
    assert [line.split(",")[0] for line in filled] == ["local:disk@1: fetched"]
    directory = node.settings.start_dir(JOB, 1) / "vcn1-1"
    xml = (directory / "domain.xml").read_text()
    source = ET.fromstring(xml).find("devices/disk/backingStore/source")
    assert source is not None
    assert source.get("file") == f"{copy}/disk.img"
    assert read_facts(xml, "running", False).disks[0] == str(directory / "disk.qcow2")
    assert (directory / "vmlinuz").read_bytes() == b"kernel of disk@1"
    assert cache_of(node.settings).in_use() == {"disk@1": ("vcn1-1", "vcn1-2")}
    node.absent()
    assert cache_of(node.settings).in_use() == {}
    node.present(node.part(1, start=2, fs_type="local", **COPIED))
    assert len(filled) == 1, "the copy was there"


def test_libvirt_is_told_to_leave_the_copy_alone(node: Node, filled: list[str]) -> None:
    node.present(node.part(1, fs_type="local", **COPIED))
    xml = (node.settings.start_dir(JOB, 1) / "vcn1-1/domain.xml").read_text()
    backing = xml.partition("<backingStore type='file'>")[2].partition("</backingStore>")[0]
    assert "copies/disk@1" in backing
    for model in ("dac", "selinux"):
        assert f"<seclabel model='{model}' relabel='no'/>" in backing


def test_an_image_that_still_arrives_is_the_sites_fault_and_says_how_far_it_is(
    node: Node, nobody: None, capfd: pytest.CaptureFixture[str]
) -> None:
    lock = start_lock.Lock(copy_queue.lock_of(node.settings))
    assert lock.take_now()
    what = Want("local", "disk@1")
    copy_queue.report_progress(node.settings, copy_queue.Progress(what, 41 << 20, 100 << 20, 55 << 20))
    with pytest.raises(SiteFault, match=r"disk@1 is still arriving on cn1.*41 % of 100 MiB, 55 MiB/s") as caught:
        present_absent.ensure_guests(node.part(1, fs_type="local", **COPIED), node.settings, Deadline.after(0.5))
    assert caught.value.__class__ is copy_queue.StillArriving
    assert "image disk@1: 41 % of 100 MiB, 55 MiB/s" in capfd.readouterr().err
    lock.close()
    assert copy_queue.wanted(node.settings) == (what,), "it goes on arriving"
    assert not list(node.settings.guests_dir.glob("*/*"))


def test_start_that_is_over_waits_no_longer(node: Node, nobody: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda settings: start_lock.bury(settings, f"{JOB}.1"))
    with pytest.raises(start_lock.StartOver):
        node.present(node.part(1, fs_type="local", **COPIED))


def test_wrong_image_of_the_pool_is_refused_and_not_read_again(node: Node, filled: list[str]) -> None:
    image_pool.spoil(node.settings.pool / "disk@1/disk.img")
    for start in (1, 2):
        with pytest.raises(ImageFault, match="its record says"):
            node.present(node.part(1, start=start, fs_type="local", **COPIED))
    assert len(filled) == 1


def test_copy_that_was_touched_is_replaced_at_its_next_use(node: Node, filled: list[str]) -> None:
    node.present(node.part(1, fs_type="local", **COPIED))
    node.absent()
    image_pool.spoil(node.settings.images_dir / "copies/disk@1/disk.img")
    node.present(node.part(1, start=2, fs_type="local", **COPIED))
    assert [line.split(",")[0] for line in filled] == ["local:disk@1: fetched"] * 2


def test_copy_on_a_bad_part_of_the_disk_is_not_met_again(
    node: Node, filled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node goes offline for it once: the test that takes it back writes elsewhere on the disk."""
    node.present(node.part(1, fs_type="local", **COPIED))
    node.absent()
    copy = node.settings.images_dir / "copies/disk@1/disk.img"
    really = disk_check.open_disk

    def open_disk(path: pathlib.Path) -> t.BinaryIO:
        if path == copy and len(filled) == 1:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return really(path)

    monkeypatch.setattr(disk_check, "open_disk", open_disk)
    with pytest.raises(NodeFault) as caught:
        node.present(node.part(1, start=2, fs_type="local", **COPIED))
    assert caught.value.cause == "disk"
    assert not copy.exists()
    node.present(node.part(1, start=3, fs_type="local", **COPIED))
    assert [line.split(",")[0] for line in filled] == ["local:disk@1: fetched"] * 2


def test_node_without_room_keeps_its_copies(node: Node, filled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    node.present(node.part(1, fs_type="local", **COPIED))
    node.absent()

    def full(*_words: object, **_more: object) -> t.NoReturn:
        raise NodeFault("no room for a guest's disk", "it is full", cause="disk")

    monkeypatch.setattr(overlay, "make_overlay", full)
    with pytest.raises(NodeFault, match="it is full"):
        node.present(node.part(1, start=2, fs_type="local", **COPIED))
    assert (node.settings.images_dir / "copies/disk@1/disk.img").exists()


def test_first_use_after_a_boot_has_the_digest_taken_behind_the_guests_back(
    node: Node, filled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.present(node.part(1, fs_type="local", **COPIED))
    node.absent()
    monkeypatch.setattr(process_id, "boot_id", lambda: "another boot")
    for start in (2, 3):
        node.present(node.part(1, start=start, fs_type="local", **COPIED))
        present_absent.absent(JOB, start, node.settings, node.soon())
    assert [line.split(",")[0] for line in filled] == ["local:disk@1: fetched", "local:disk@1: verified"]


def test_image_without_a_record_is_not_copied(node: Node, nobody: None) -> None:
    with pytest.raises(UserFault, match="no record"):
        node.present(node.part(1, fs_type="local"))


# -- the pool's own file


def test_pools_own_file_is_verified_once_behind_the_guests_backs(node: Node, filled: list[str]) -> None:
    for start in (1, 2):
        node.present(node.part(1, start=start, **COPIED))
        present_absent.absent(JOB, start, node.settings, node.soon())
    assert [line.split(",")[0] for line in filled] == ["sharedfs:disk@1: verified in the pool"]
    assert not (node.settings.images_dir / "copies").exists()
    image_pool.spoil(node.settings.pool / "disk@1/disk.img", b"disk")  # the same, but who knows
    node.present(node.part(1, start=3, **COPIED))
    assert len(filled) == 2
    assert len(list((node.settings.images_dir / "checked").iterdir())) == 1


def test_pool_that_holds_something_else_is_found_at_the_first_use_and_refused_from_then_on(
    node: Node, filled: list[str]
) -> None:
    image_pool.spoil(node.settings.pool / "disk@1/disk.img")
    node.present(node.part(1, **COPIED))
    for start, fs_type in ((2, "sharedfs"), (3, "local")):
        with pytest.raises(ImageFault, match="its record says"):
            node.present(node.part(1, start=start, fs_type=fs_type, **COPIED))
    assert len(filled) == 1, "and it is not read again"
    image_pool.spoil(node.settings.pool / "disk@1/disk.img", b"disk")
    node.present(node.part(1, start=4, **COPIED))
    assert filled[-1].startswith("sharedfs:disk@1: verified in the pool")


def test_image_without_a_record_has_nothing_to_be_verified_by(node: Node, filled: list[str]) -> None:
    node.present()
    assert filled == []


# -- in memory


@pytest.fixture
def memory(node: Node, filled: list[str], tmp_path: pathlib.Path) -> t.Iterator[Node]:
    """A ramdisk with room for one image and a half."""
    place = tmp_path / "ramdisk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=755", "none", str(place)], check=True)
    node.settings = dataclasses.replace(node.settings, ramdisk_dir=place)
    yield node
    subprocess.run(["umount", str(place)], check=True)


def test_guests_stand_on_a_copy_in_memory_and_their_own_disks_do_not(memory: Node, filled: list[str]) -> None:
    memory.present(memory.part(1, fs_type="ramdisk", **COPIED))
    assert base(memory) == memory.settings.ramdisk_dir / "vtorque/disk@1/disk.img"
    assert [line.split(",")[0] for line in filled] == ["ramdisk:disk@1: fetched"]


def test_ramdisk_is_bounded_by_its_own_size(memory: Node, filled: list[str]) -> None:
    image_pool.add(memory.settings.pool, "other@1")
    memory.present(memory.part(1, fs_type="ramdisk", **COPIED))
    with pytest.raises(SiteFault, match=r"no room for image other@1 .*in use: disk@1 \(vcn1-1\)"):
        memory.present(memory.part(1, job_id="8.head", fs_type="ramdisk", image="other@1"))
    memory.absent()
    memory.present(memory.part(1, start=2, fs_type="ramdisk", image="other@1"))
    assert [copy.image for copy in cache_of(memory.settings, "ramdisk").copies()] == ["other@1"]


def test_ramdisk_copies_reduce_guest_memory_and_are_removed_for_guests(
    memory: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_of_node, "reserved_memory", lambda *_words: (0, "the host"))
    monkeypatch.setattr(memory_of_node, "node_mib", lambda: 66)
    with pytest.raises(UserFault, match=r"64 MiB for the guests on cn1, and 5 MiB for images on the ramdisk.* has 66"):
        memory.present(memory.part(1, fs_type="ramdisk", **COPIED))
    monkeypatch.setattr(memory_of_node, "node_mib", lambda: 70)
    memory.present(memory.part(1, start=2, fs_type="ramdisk", **COPIED))
    assert ramdisk.used_bytes(memory.settings) > 4 << 20
    present_absent.absent(JOB, 2, memory.settings, memory.soon())
    monkeypatch.setattr(memory_of_node, "node_mib", lambda: 66)
    memory.present(memory.part(1, start=3))
    assert ramdisk.used_bytes(memory.settings) == 0, "nobody stood on it, and a guest needed the memory"


@pytest.mark.parametrize(
    ("options", "message"),
    [(None, "is no tmpfs"), ("size=0", "has no bound"), ("size=6m,mode=1777", "written by others"), ("", "No such")],
)
def test_ramdisk_that_is_none_is_told_before_anything_is_made(
    node: Node, filled: list[str], tmp_path: pathlib.Path, options: str | None, message: str
) -> None:
    place = tmp_path / "ramdisk"
    if options != "":
        place.mkdir()
    if options:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], check=True)
    node.settings = dataclasses.replace(node.settings, ramdisk_dir=place)
    try:
        with pytest.raises(SiteFault, match=f"ramdisk_dir .*{message}.*fs_type=local"):
            node.present(node.part(1, fs_type="ramdisk", **COPIED))
    finally:
        if options:
            subprocess.run(["umount", str(place)], check=True)
    assert filled == []
    assert not list(node.settings.guests_dir.glob("*/*"))


def test_last_file_system_that_was_mounted_counts(tmp_path: pathlib.Path) -> None:
    mounts = tmp_path / "mountinfo"
    line = "{} 1 0:1 / {} rw - {} none rw\n"
    mounts.write_text(line.format(1, "/", "ext4") + line.format(2, "/ram", "ext4") + line.format(3, "/ram", "tmpfs"))
    assert ramdisk._kind_of(pathlib.Path("/ram"), mounts) == "tmpfs"
    assert ramdisk._kind_of(pathlib.Path("/ram/of/mine"), mounts) == "tmpfs"
    assert ramdisk._kind_of(pathlib.Path("/ramdisk"), mounts) == "ext4"


def test_node_without_a_ramdisk_pays_nothing(tmp_path: pathlib.Path) -> None:
    here: NodeSettings = image_pool.settings_for(tmp_path, ramdisk_dir=tmp_path / "none")
    assert ramdisk.used_bytes(here) == 0
