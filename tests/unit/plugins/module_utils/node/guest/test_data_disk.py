# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's own disk is mounted and taken off where a guest has one."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import data_disk
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.agent import Channel, Done
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage.user_disk import LOG
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

JOB = "7.head"


class Node:
    """A node with two guests, of which the first may have a disk."""

    def __init__(self, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = NodeSettings("n1", 1, state_dir=place / "state", run_dir=place / "run")
        self.told: dict[str, str] = {}
        self.done = Done(0, "")
        monkeypatch.setattr(data_disk, "order_all", self._order_all)
        for rank in (0, 1):
            kept = GuestFile(rank, rank + 1, f"vn1-{rank + 1}", "52:54:00:00:01:01", "u", "f00d", 1001, "d")
            self.guest(rank).mkdir(parents=True)
            write_guest_file(self.guest(rank), kept)

    def guest(self, rank: int) -> pathlib.Path:
        return self.settings.start_dir(JOB, 1) / f"vn1-{rank + 1}"

    def _order_all(self, orders: t.Sequence[tuple[Channel, str]], deadline: Deadline) -> dict[str, Done]:
        self.told = {channel.name: script for channel, script in orders}
        return dict.fromkeys(self.told, self.done)

    def mount(self) -> None:
        data_disk.mount(JOB, 1, self.settings, Deadline.after(60))


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_guests_without_a_disk_are_not_asked(node: Node) -> None:
    node.mount()
    assert data_disk.unmount(JOB, 1, node.settings) == ()
    assert node.told == {}


def test_the_guest_that_has_one_is_told(node: Node) -> None:
    (node.guest(0) / LOG).touch()
    node.mount()
    assert node.told == {"vn1-1": "exec /usr/lib/vtorque/data mount\n"}
    assert data_disk.unmount(JOB, 1, node.settings) == ()
    assert node.told == {"vn1-1": "exec /usr/lib/vtorque/data unmount\n"}


@pytest.mark.parametrize(
    ("done", "kind", "words"),
    [
        (Done(90, "x\nwhat is on it cannot be mounted\n"), UserFault, "what is on it cannot be mounted"),
        (Done(1, "the disk has not come to the guest"), VTorqueError, "the disk has not come to the guest"),
        (Done(124, ""), VTorqueError, "ended with status 124"),
    ],
)
def test_what_goes_wrong_is_told(node: Node, done: Done, kind: type[VTorqueError], words: str) -> None:
    (node.guest(0) / LOG).touch()
    node.done = done
    with pytest.raises(VTorqueError) as caught:
        node.mount()
    assert isinstance(caught.value, UserFault) is (kind is UserFault)
    assert (caught.value.what, caught.value.why) == ("disk in guest vn1-1", words)
    assert data_disk.unmount(JOB, 1, node.settings) == (f"disk in guest vn1-1: {words}",)
