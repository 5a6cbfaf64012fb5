# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's own disk is mounted and taken off where a guest has one."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import data_disk
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.agent import OrderResult
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage.user_disk import LOG
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

from .ordered_node import OrderedNode

JOB = "7.head"


class Node(OrderedNode):
    """A node with two guests, of which the first may have a disk."""

    def __init__(self, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(place, data_disk, monkeypatch, JOB)
        for rank in (0, 1):
            self.add_guest(rank)

    def mount(self) -> None:
        data_disk.mount(JOB, 1, self.settings, Deadline.after(60))


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_guests_without_a_disk_are_not_asked(node: Node) -> None:
    node.mount()
    assert data_disk.unmount(JOB, 1, node.settings) == ()
    assert node.reported == {}


def test_guest_that_has_one_is_told(node: Node) -> None:
    (node.directory(0) / LOG).touch()
    node.mount()
    assert node.reported == {"vn1-1": "exec /usr/lib/vtorque/data mount\n"}
    assert data_disk.unmount(JOB, 1, node.settings) == ()
    assert node.reported == {"vn1-1": "exec /usr/lib/vtorque/data unmount\n"}


@pytest.mark.parametrize(
    ("done", "kind", "message"),
    [
        (OrderResult(90, "x\nwhat is on it cannot be mounted\n"), UserFault, "what is on it cannot be mounted"),
        (OrderResult(1, "the disk has not come to the guest"), VTorqueError, "the disk has not come to the guest"),
        (OrderResult(124, ""), VTorqueError, "ended with status 124"),
    ],
)
def test_mount_or_unmount_that_fails_is_reported(
    node: Node, done: OrderResult, kind: type[VTorqueError], message: str
) -> None:
    (node.directory(0) / LOG).touch()
    node.done = {"vn1-1": done}
    with pytest.raises(VTorqueError) as caught:
        node.mount()
    assert isinstance(caught.value, UserFault) is (kind is UserFault)
    assert (caught.value.what, caught.value.why) == ("disk in guest vn1-1", message)
    assert data_disk.unmount(JOB, 1, node.settings) == (f"disk in guest vn1-1: {message}",)
