# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a disk file is."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import ImageFault, NodeFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import image_check
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.records import Deadline

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

SOON = 60.0


@pytest.mark.parametrize("option", ["backing", "data"])
def test_an_image_that_leans_on_another_file_is_refused(
    image_pool: ImagePool, option: str, tmp_path: pathlib.Path
) -> None:
    path = image_pool.path / "leaning.qcow2"
    if option == "backing":
        image_pool.qemu_img("create", "-q", "-f", "qcow2", "-b", image_pool.path / "old.img", "-F", "raw", path, "8M")
    else:
        image_pool.qemu_img("create", "-q", "-f", "qcow2", "-o", f"data_file={tmp_path / 'data'}", path, "8M")
    path.chmod(0o444)
    with pytest.raises(ImageFault, match="file"):
        image_check.inspect(image_pool.find("leaning"), Deadline.after(SOON))


def test_a_disk_that_is_none_is_the_images_fault(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    (image_pool.path / "broken.qcow2").write_text("not a disk")
    (image_pool.path / "broken.qcow2").chmod(0o444)
    with pytest.raises(ImageFault, match="qemu-img info"):
        image_check.inspect(image_pool.find("broken"), Deadline.after(SOON))


def test_a_disk_of_another_size_than_its_record_says_is_the_images_fault(
    image_pool: ImagePool, tmp_path: pathlib.Path
) -> None:
    image_pool.add("tiny", 11, virtual_bytes=32 << 20)
    with pytest.raises(ImageFault, match="its record says"):
        image_check.inspect(image_pool.find("tiny"), Deadline.after(SOON))


def test_a_missing_tool_is_the_nodes_fault(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NodeFault, match="is missing"):
        image_check.inspect(image_pool.find("tiny"), Deadline.after(SOON), qemu_img=tmp_path / "none")


def test_a_tool_that_hangs_ends_at_the_deadline(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    tool = tmp_path / "slow"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    with pytest.raises(VTorqueError, match="no answer"):
        image_check.inspect(image_pool.find("tiny"), Deadline.after(0.3), qemu_img=tool)
