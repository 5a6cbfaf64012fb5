# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of a start are made side by side, and libvirt is not flooded."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import typing as t

if t.TYPE_CHECKING:
    from .conftest import Node

MOST = 4
"""Of more than five in flight on one connection libvirt's keepalive starves (shakenfist 3304)."""


class Counted:
    """Calls that are in flight; each stays until one too many has come, or nobody comes."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def one(self) -> t.Iterator[None]:
        with self._changed:
            self.now += 1
            self.peak = max(self.peak, self.now)
            self._changed.notify_all()
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

    node.patch.setattr("ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guests.Domains", connect)
    node.settings = dataclasses.replace(node.settings, max_guests=5)
    assert len(node.present(node.part(5))) == 5
    assert (counted.peak, len(connections)) == (MOST, 1)
