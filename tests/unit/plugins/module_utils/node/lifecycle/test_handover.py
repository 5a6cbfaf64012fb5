# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that are ready go at once when whoever asked for them gives up, and stay once they were told of their job."""

from __future__ import annotations

import contextlib
import os
import signal
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import join
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.agent import OrderResult
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import client
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.handover import CallerEnd
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.layout import job_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import JobMap, KeyPair

if t.TYPE_CHECKING:
    from ..conftest import Node


KEY = KeyPair("-----BEGIN OPENSSH PRIVATE KEY-----\n", "ssh-ed25519 " + "A" * 68)


def held(node: Node) -> CallerEnd:
    """Two guests, ready and held."""
    hold = CallerEnd()
    client.request_guests(node.part(2), node.settings, node.soon(), hold=hold)
    return hold


@contextlib.contextmanager
def asked_again(node: Node) -> t.Iterator[None]:
    """The same two guests, held by a second caller meanwhile."""
    with CallerEnd() as second:
        client.request_guests(node.part(2), node.settings, node.soon(), hold=second)
        yield


def tell(node: Node, status: int = 0) -> None:
    """Tell the guests of their job, as far as this node has to do with it."""
    node.patch.setattr(join, "script_of", lambda *_words: "")
    node.patch.setattr(
        join,
        "order_all",
        lambda orders, _deadline: {channel.name: OrderResult(status, "") for channel, _script in orders},
    )
    join.join(JobMap(1, "join", "7.head", 1, "cn1", 60.0, (), KEY), node.settings, node.soon())


def all_of_it(node: Node) -> list[str]:
    """What goes when the start is over; and it is the epilogue that takes it."""
    assert not start_lock.tombstone(node.settings, job_key("7.head", 1)).exists()
    return list(node.absent())


def test_guests_that_are_given_up_go_at_once(node: Node) -> None:
    hold = held(node)
    pid = node.worker
    hold.close()
    node.wait_for_the_end_of(pid)
    assert node.things == []
    assert "nobody told them of their job" in node.log.read_text()
    with pytest.raises(VTorqueError, match="is over"):
        client.request_guests(node.part(2), node.settings, node.soon())


def test_killed_caller_gives_up_its_guests(node: Node) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        held(node)
        os.write(writing, b"held")
        while True:
            signal.pause()
    assert os.read(reading, 4) == b"held"
    pid = node.worker
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    node.wait_for_the_end_of(pid)
    assert node.things == []
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("status", [0, 1], ids=["they take it", "they do not take it"])
def test_caller_that_goes_after_the_join_removes_nothing(node: Node, status: int) -> None:
    hold = held(node)
    pid = node.worker
    try:
        tell(node, status)
    except VTorqueError:
        assert status == 1
    hold.close()
    require_guests_until_the_epilogue(node, pid)


def test_first_caller_may_go_after_the_join_of_another(node: Node) -> None:
    """As when the hook begins, and the playbook asks again."""
    first = held(node)
    pid = node.worker
    with asked_again(node):
        tell(node)
    first.close()
    require_guests_until_the_epilogue(node, pid)


def test_second_caller_that_goes_removes_nothing(node: Node) -> None:
    first = held(node)
    pid = node.worker
    with asked_again(node):
        pass
    goes_on_watching(node, pid)
    first.close()
    node.wait_for_the_end_of(pid)
    assert node.things == []


def test_without_a_hold_they_stay(node: Node) -> None:
    client.request_guests(node.part(2), node.settings, node.soon())
    require_guests_until_the_epilogue(node, node.worker)


def require_guests_until_the_epilogue(node: Node, worker: int) -> None:
    """The same worker watches the guests, and the epilogue takes them."""
    goes_on_watching(node, worker)
    assert "domain vcn1-1" in all_of_it(node)


def goes_on_watching(node: Node, worker: int) -> None:
    """Whoever let go before is heard by the worker no later than what happens to a guest now."""
    node.hypervisor.pause("vcn1-1")
    node.wait_for_words("guest vcn1-1 is lost: ")
    assert node.worker == worker
    assert list(node.hypervisor.running) == ["vcn1-1", "vcn1-2"]
