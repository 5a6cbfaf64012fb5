# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of a start are made side by side, libvirt is not flooded, and the disk is promised once."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import shutil
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import disk_space
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import user_disk
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

if t.TYPE_CHECKING:
    from ...conftest import Node

MOST = 4
"""Of more than five in flight on one connection libvirt's keepalive starves (shakenfist 3304)."""

OWN = "/home/alice/own.qcow2"


class Counted:
    """Calls that are in flight; each stays until as many as may have come, and one too many has, or nobody does."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def one(self) -> t.Iterator[None]:
        with self._changed:
            self.now += 1
            self.peak = max(self.peak, self.now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.peak >= MOST, timeout=20)
            self._changed.wait_for(lambda: self.peak > MOST, timeout=1)
        try:
            yield
        finally:
            with self._changed:
                self.now -= 1


def test_four_calls_are_in_flight_on_a_connection_and_no_more(node: Node) -> None:
    """All of them on one connection, whatever the number of guests."""
    counted, connections = Counted(), []

    def connect(*how: t.Any, **more: t.Any) -> t.Any:
        connection = node.hypervisor.connect(*how, **more)
        create = connection.create

        def slow(xml: str) -> None:
            with counted.one():
                create(xml)

        connection.create = slow
        connections.append(connection)
        return connection

    node.patch.setattr(
        "ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.present_absent.Domains", connect
    )
    node.settings = dataclasses.replace(node.settings, max_guests=5)
    assert len(node.present(node.part(5))) == 5
    assert (counted.peak, len(connections)) == (MOST, 1)


@pytest.mark.parametrize("images_of_two", [("tiny", "tiny"), (OWN, OWN), ("tiny", OWN)])
def test_two_starts_in_the_same_second_are_not_promised_the_same_room(
    node: Node, monkeypatch: pytest.MonkeyPatch, images_of_two: tuple[str, str]
) -> None:
    """On a shared node, where each has a lock of its own; the disk has room for one of them."""
    both_have_looked = threading.Barrier(2)
    look = disk_space.read_disk_use

    def slow(guests_dir: pathlib.Path) -> disk_space.DiskUse:
        taken = look(guests_dir)
        # the other one has looked, or stands before a lock and cannot
        with contextlib.suppress(threading.BrokenBarrierError):
            both_have_looked.wait(1)
        return taken

    def start(job_id: str, image: str) -> VTorqueError | None:
        try:
            node.present(node.part(job_id=job_id, image=image))
        except VTorqueError as error:
            return error
        return None

    node.settings = dataclasses.replace(node.settings, own_images_mib=64)
    monkeypatch.setattr(disk_space, "read_disk_use", slow)
    monkeypatch.setattr(user_disk, "serve_image", lambda *_words, **_more: (pathlib.Path("/run/image.sock"), 1 << 20))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1 << 30, 0, 3 << 19))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        output = list(pool.map(start, ("7.head", "8.head"), images_of_two))
    assert sorted(type(one) for one in output if one) == [SiteFault], output
    assert "promised to other guests" in str(next(filter(None, output)))


def test_lock_on_the_disk_that_is_never_let_go_blames_nobody(node: Node) -> None:
    """Who holds it may hang on a pool that does not answer."""
    late = pytest.raises(VTorqueError, match="held it for too long")
    with start_lock.lock_alone(node.settings.run_dir / "locks/disk", node.settings, Deadline.after(60)), late as caught:
        present_absent.ensure_guests(node.part(), node.settings, Deadline.after(1))
    assert caught.value.fault == VTorqueError.fault
    assert node.present(node.part(start=2))
