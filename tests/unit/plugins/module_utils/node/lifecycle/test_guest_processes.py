# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtiofsd that dies under a running job takes the guest's mount with it: the guest is lost, and told of."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import client, monitor
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import leftovers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists.mounts import Mount

if t.TYPE_CHECKING:
    from ..conftest import Node


@pytest.fixture
def sharing(node: Node) -> t.Iterator[Node]:
    """A node whose two guests share a directory of it, and are watched."""
    shared = pathlib.Path(tempfile.mkdtemp(prefix="vtq", dir="/tmp"))
    shared.chmod(0o755)
    node.settings = dataclasses.replace(node.settings, mounts=(Mount("virtiofs", str(shared), "/workspace"),))
    node.open_log()
    (node.run_directory / "ready.json").write_text("{}")
    yield node
    leftovers.end_processes(node.settings, "7.head.1")
    shared.rmdir()


def virtiofsd_of(node: Node, guest: str) -> int:
    """The process that serves a guest's mount."""
    (pid,) = [
        pid for pid, _key in leftovers.processes(node.settings)
        if f"/{guest}/vtorque0\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    ]  # fmt: skip
    return pid


def test_guest_whose_mount_died_is_lost_and_the_mount_is_named(sharing: Node) -> None:
    client.request_guests(sharing.part(2), sharing.settings, sharing.soon())
    sharing.wait_for_words("watches the guests")
    os.kill(virtiofsd_of(sharing, "vcn1-2"), signal.SIGKILL)
    lost = sharing.wait_for(sharing.run_directory / "lost.json")
    assert lost["guest"] == "vcn1-2"
    assert lost["reason"] == "its mount /workspace is dead: the virtiofsd of it on cn1 ended"
    assert "vcn1-1 is lost" not in sharing.log.read_text()
    assert "domain vcn1-1" in sharing.absent()


def test_mount_that_died_before_it_was_watched_is_told_of_too(sharing: Node) -> None:
    sharing.present(sharing.part(2))
    os.kill(virtiofsd_of(sharing, "vcn1-1"), signal.SIGKILL)
    client.request_guests(sharing.part(2), sharing.settings, sharing.soon())
    lost = sharing.wait_for(sharing.run_directory / "lost.json")
    assert (lost["guest"], "/workspace" in lost["reason"]) == ("vcn1-1", True)


def test_guest_that_ended_is_not_told_of_by_its_mount(sharing: Node) -> None:
    """Its virtiofsd ends with it, and may be heard before libvirt says what happened."""
    sharing.patch.setattr(monitor, "WORD_S", 3600.0)
    client.request_guests(sharing.part(), sharing.settings, sharing.soon())
    sharing.wait_for_words("watches the guests")
    os.kill(virtiofsd_of(sharing, "vcn1-1"), signal.SIGKILL)
    sharing.hypervisor.forget()
    assert sharing.wait_for(sharing.run_directory / "lost.json")["reason"] == "it was destroyed"


def own_image(node: Node) -> pathlib.Path:
    """An image of the guests' owner, and a node on which they may boot it."""
    node.settings = dataclasses.replace(node.settings, own_images_mib=64)
    path = pathlib.Path(tempfile.mkdtemp(prefix="vtq", dir="/tmp"), "own.qcow2")
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "32M"], check=True, timeout=60)
    for place in (path, path.parent):
        os.chown(place, 1001, 1001)
    return path


def test_guest_whose_own_image_is_out_of_reach_is_lost(node: Node) -> None:
    """Of the other guest's it is another process."""
    path = own_image(node)
    node.open_log()
    (node.run_directory / "ready.json").write_text("{}")
    try:
        client.request_guests(node.part(2, image=str(path)), node.settings, node.soon())
        node.wait_for_words("watches the guests")
        served = dict(leftovers.processes(node.settings))
        assert len(served) == 2
        (pid,) = [pid for pid in served if "vcn1-2/image" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(pid, signal.SIGKILL)
        lost = node.wait_for(node.run_directory / "lost.json")
        assert (lost["guest"], lost["reason"]) == (
            "vcn1-2", "its image is out of reach: the qemu-nbd of it on cn1 ended",
        )  # fmt: skip
        node.absent()
        assert leftovers.processes(node.settings) == ()
    finally:
        leftovers.end_processes(node.settings, "7.head.1")
        shutil.rmtree(path.parent)
