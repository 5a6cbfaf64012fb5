# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory to which saved guests return, beside what pools of huge pages and guests of other jobs have of the node."""

from __future__ import annotations

import contextlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import room
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import claims, ledger, pins
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import guest_file, saved_memory, start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import memory

from ..placement.pools import Pools

if t.TYPE_CHECKING:
    import pathlib

    from ..conftest import Node

KEY = "7.head.1"
DOMAIN = (
    "<domain><name>{}</name><metadata><g:guest xmlns:g='urn:mikelangelo:vtorque:guest:1' job='8.head'"
    " start='1' owner='alice' rank='0' node='cn1'/></metadata><memory unit='MiB'>{}</memory><devices/></domain>"
)


@pytest.fixture
def pools(node: Node, tmp_path: pathlib.Path) -> t.Iterator[Pools]:
    """A node of 1 GiB, on whose disk a watched guest of 128 MiB is; another job is making one of 400 MiB."""
    node.patch.setattr(memory, "node_mib", lambda: 1024)
    node.patch.setattr(memory, "available_mib", lambda: 900)  # what others have not touched yet counts as available
    saved = node.settings.guests_dir / KEY / "vcn1-1"
    other = node.settings.guests_dir / "8.head.1" / "vcn1-3"
    for slot, guest, ram_mib in ((1, saved, 128), (3, other, 400)):
        guest.mkdir(parents=True)
        facts = guest_file.GuestFile(
            0, slot, guest.name, f"52:54:00:00:00:0{slot}", "u", "t", 0, "d", "b", "slg", ram_mib
        )
        guest_file.write_guest_file(guest, facts)
    saved_memory.order_save(saved, 128 << 20)
    saved_memory.memory_file(saved).write_bytes(saved_memory.COMPLETE)
    with contextlib.ExitStack() as stack:
        for key in (KEY, "8.head.1"):
            lock = stack.enter_context(contextlib.closing(start_lock.Lock(start_lock.start_lock(node.settings, key))))
            assert lock.take_now()
        yield Pools(tmp_path / "sys", node.patch)


def lack(node: Node) -> str:
    with node.hypervisor.connect("") as domains:
        return room.lack(node.settings, KEY, domains)


def test_guests_return_to_no_memory_that_is_in_pools_or_was_promised(node: Node, pools: Pools) -> None:
    pools.set(0, 248)
    assert lack(node) == ""
    pools.set(0, 249)
    assert lack(node) == "cn1 has 126 MiB of memory for guests now, and 128 MiB are needed"


def test_what_guests_have_of_the_pools_is_not_taken_from_the_rest_once_more(node: Node, pools: Pools) -> None:
    pools.set(0, 400)
    other = node.settings.guests_dir / "8.head.1" / "vcn1-3"
    (node.hypervisor.place / "vcn1-3.xml").write_text(DOMAIN.format("vcn1-3", 400))
    assert lack(node).startswith("cn1 has 0 MiB of memory for guests now")
    claims.claim(other, pins.Pins(((5,),), (6,)), ledger.Promise(0, {}, {(0, 2048): 200}, True))
    assert lack(node) == ""


def test_domain_of_somebody_else_counts(node: Node, pools: Pools) -> None:
    pools.set(0, 100)
    (node.hypervisor.place / "theirs.xml").write_text(
        "<domain><name>theirs</name><memory unit='MiB'>297</memory></domain>"
    )
    assert lack(node) == "cn1 has 127 MiB of memory for guests now, and 128 MiB are needed"
