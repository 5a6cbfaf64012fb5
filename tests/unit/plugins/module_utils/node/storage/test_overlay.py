# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks of guests."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    ImageFault,
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.disk_space import DiskUse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage.overlay import (
    make_overlay,
    make_overlay_on_socket,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

SOON = 60.0


@pytest.mark.parametrize("name", ["tiny", "plain", "old"])
def test_overlay_names_its_base_and_leaves_it_alone(image_pool: ImagePool, name: str, tmp_path: pathlib.Path) -> None:
    image = image_pool.find(name)
    before = image.path.read_bytes()
    size = make_overlay(image, tmp_path / "overlay.qcow2", Deadline.after(SOON))
    report = subprocess.run(
        ["qemu-img", "info", "--output=json", tmp_path / "overlay.qcow2"], check=True, capture_output=True, timeout=60
    )
    facts = json.loads(report.stdout)
    assert facts["backing-filename"] == str(image.path)
    assert facts["backing-filename-format"] == image.format
    assert facts["virtual-size"] == size
    assert image.path.read_bytes() == before
    assert (tmp_path / "overlay.qcow2").stat().st_mode & 0o777 == 0o600


def test_missing_tool_is_the_nodes_fault(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NodeFault, match="is missing"):
        make_overlay(image_pool.find("tiny"), tmp_path / "disk.qcow2", Deadline.after(SOON), qemu_img=tmp_path / "none")


def test_tool_that_hangs_ends_at_the_deadline(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    tool = tmp_path / "slow"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    with pytest.raises(VTorqueError, match="no answer"):
        make_overlay(image_pool.find("tiny"), tmp_path / "disk.qcow2", Deadline.after(0.3), qemu_img=tool)


@pytest.mark.parametrize(("reads", "fault"), [(True, NodeFault), (False, ImageFault)])
def test_tool_that_fails_blames_the_image_only_when_it_cannot_read_it(
    image_pool: ImagePool, tmp_path: pathlib.Path, reads: bool, fault: type
) -> None:
    tool = tmp_path / "qemu-img"
    tool.write_text(f'#!/bin/sh\n[ "$1" = info ] && {str(reads).lower()} && echo "{{}}" && exit\necho no >&2\nexit 1\n')
    tool.chmod(0o755)
    with pytest.raises(VTorqueError, match="no") as report:
        make_overlay(image_pool.find("tiny"), tmp_path / "disk.qcow2", Deadline.after(SOON), qemu_img=tool)
    assert report.type is fault


def test_an_overlay_is_never_readable_by_others(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    """Not for a moment: who has it open once reads all that the guest ever writes."""
    modes = tmp_path / "modes"
    program = tmp_path / "qemu-img"
    program.write_text(
        f'#!/bin/sh\nqemu-img "$@" || exit\nfor last; do :; done\n[ "$1" != create ] || stat -c %a "$last" >{modes}\n'
    )
    program.chmod(0o755)
    former = os.umask(0o022)
    try:
        make_overlay(image_pool.find("old"), tmp_path / "disk.qcow2", Deadline.after(SOON), qemu_img=program)
    finally:
        os.umask(former)
    assert modes.read_text() == "600\n"


@pytest.mark.parametrize(
    ("taken", "fault"),
    [
        (DiskUse(), NodeFault),
        (DiskUse(held_bytes=4 << 20), NodeFault),
        (DiskUse(held_bytes=8 << 20), SiteFault),
        (DiskUse(held_bytes=8 << 20, promised_bytes=1 << 60), SiteFault),
    ],
)
def test_a_disk_that_guests_fill_is_no_fault_of_the_node(
    image_pool: ImagePool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, taken: DiskUse, fault: type
) -> None:
    """Else a user who asks for enough guests could set a node offline that is well; 16 MiB are asked for."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1 << 30, 1 << 30, 8 << 20))
    with pytest.raises(fault, match="no room"):
        make_overlay(image_pool.find("tiny"), tmp_path / "overlay.qcow2", Deadline.after(SOON), taken=taken)
    assert not (tmp_path / "overlay.qcow2").exists()


def test_promised_space_is_not_given_twice(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    taken = DiskUse(promised_bytes=1 << 60)
    with pytest.raises(SiteFault, match="promised to other guests"):
        make_overlay(image_pool.find("tiny"), tmp_path / "overlay.qcow2", Deadline.after(SOON), taken=taken)
    assert not (tmp_path / "overlay.qcow2").exists()


def test_image_that_no_disk_could_hold_is_the_sites_fault(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    image_pool.qemu_img(
        "create", "-q", "-f", "qcow2", image_pool.path / "huge.qcow2", shutil.disk_usage(tmp_path).total * 4
    )
    (image_pool.path / "huge.qcow2").chmod(0o444)
    with pytest.raises(SiteFault, match="in all"):
        make_overlay(image_pool.find("huge"), tmp_path / "overlay.qcow2", Deadline.after(SOON))


def test_overlay_on_a_users_image_looks_at_nothing_of_his(tmp_path: pathlib.Path) -> None:
    """Nobody listens there: whoever tried would fail."""
    overlay, socket = tmp_path / "disk.qcow2", tmp_path / "72[1].head.1" / "image.sock"
    make_overlay_on_socket(socket, 32 << 20, overlay, Deadline.after(SOON))
    report = subprocess.run(["qemu-img", "info", "--output=json", overlay], check=True, capture_output=True, timeout=60)
    facts = json.loads(report.stdout)
    assert facts["backing-filename"].endswith("/72%5B1%5D.head.1/image.sock")
    assert (facts["backing-filename-format"], facts["virtual-size"]) == ("raw", 32 << 20)
    assert overlay.stat().st_mode & 0o777 == 0o600


def test_size_of_a_users_image_is_never_the_nodes_fault(tmp_path: pathlib.Path) -> None:
    disk = shutil.disk_usage(tmp_path)
    taken = DiskUse(0, disk.free)
    for size, kind, word in ((disk.total + 1, UserFault, "in all"), (disk.free, SiteFault, "promised to other guests")):
        with pytest.raises(kind, match=word):
            make_overlay_on_socket(
                tmp_path / "image.sock", size, tmp_path / "disk.qcow2", Deadline.after(SOON), taken=taken
            )
    assert list(tmp_path.iterdir()) == []
