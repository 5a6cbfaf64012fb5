# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's neighbour table: its messages byte by byte, and a real kernel's (`test_neighbours.py` hears it too)."""

from __future__ import annotations

import socket

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import rtnetlink
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network.rtnetlink import Entry

from .kernel import run_in_network

ENTRY = bytes.fromhex(
    # nlmsghdr: 76 bytes, RTM_NEWNEIGH, NLM_F_MULTI, sequence 1, port 4242
    "4c000000 1c00 0200 01000000 92100000"
    # ndmsg: AF_INET, interface 7, NUD_REACHABLE, NTF_EXT_LEARNED, RTN_UNICAST; NDA_DST 10.77.0.5
    "02 00 0000 07000000 0200 10 01 0800 0100 0a4d0005"
    # NDA_LLADDR 52:54:00:00:01:01, padded; NDA_PROBES; NDA_CACHEINFO
    "0a00 0200 525400000101 0000 0800 0400 01000000 1400 0300 00000000 00000000 00000000 02000000"
)
"""As Linux 6.12 sends it on a little-endian machine."""


def test_entry_is_read_as_the_kernel_writes_it() -> None:
    ((kind, sequence, content),) = rtnetlink.messages(ENTRY)
    assert kind == rtnetlink.RTM_NEWNEIGH
    entry = rtnetlink.read_entry(sequence, content)
    assert entry == Entry(7, socket.AF_INET, rtnetlink.NUD_REACHABLE, b"\x0a\x4d\x00\x05", "52:54:00:00:01:01", True)
    assert entry.text == "10.77.0.5"


@pytest.mark.parametrize("length", range(len(ENTRY)))
def test_truncated_message_is_no_entry(length: int) -> None:
    assert list(rtnetlink.messages(ENTRY[:length])) == []
    whole = rtnetlink.read_entry(1, ENTRY[16:length])
    assert whole is None or whole.text in ("", "10.77.0.5")


def test_two_messages_of_one_datagram_are_two() -> None:
    assert len(list(rtnetlink.messages(ENTRY * 2 + b"\0" * 3))) == 2


@pytest.mark.parametrize(("family", "address"), [(7, b"\x0a\x4d\x00\x05"), (2, b"\x0a"), (10, b"\x0a\x4d\x00\x05")])
def test_address_of_another_network_has_no_text(family: int, address: bytes) -> None:
    """Bridges have entries of their own (AF_BRIDGE)."""
    assert Entry(7, family, 2, address, "52:54:00:00:01:01", False).text == ""


def _entry(family: int, address: str, confirmed: int, state: int = rtnetlink.NUD_REACHABLE) -> bytes:
    """A message of the kernel's about one neighbour."""
    packed = socket.inet_pton(family, address)
    body = rtnetlink.NEIGHBOUR.pack(family, 0, 0, 7, state, 0, 1)
    ages = rtnetlink.CACHE_INFO.pack(confirmed, 0, 0, 1)
    mac = bytes.fromhex("525400000101") + b"\0\0"
    for kind, value, length in ((1, packed, len(packed)), (2, mac, 6), (3, ages, len(ages))):
        body += rtnetlink.ATTRIBUTE.pack(rtnetlink.ATTRIBUTE.size + length, kind) + value
    return rtnetlink.HEADER.pack(rtnetlink.HEADER.size + len(body), rtnetlink.RTM_NEWNEIGH, 2, 1, 0) + body


def test_of_two_addresses_of_a_card_the_one_that_was_heard_of_last_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry of an address that the guest had before stays reachable for half a minute."""
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, kernel:
        monkeypatch.setattr(rtnetlink, "_open", lambda _groups: ours)
        table = rtnetlink.Table(None)
        kernel.recv(100)
        old, new = _entry(socket.AF_INET, "10.77.0.5", 2000), _entry(socket.AF_INET, "10.77.0.6", 10)
        kernel.send(_entry(socket.AF_INET6, "fd00::5", 0) + old)
        kernel.send(new)
        assert [address for _mac, address in table.read()] == ["10.77.0.6", "10.77.0.5", "fd00::5"]


KERNEL = """
import subprocess
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import rtnetlink
def ip(words): subprocess.run(["ip", *words.split()], check=True)
ip("link add br0 type bridge")
ip("addr add 10.77.0.1/16 dev br0")
ip("link set br0 up")
rtnetlink.BUFFER = 4096  # and not one message more
table = rtnetlink.Table(None)
rtnetlink.BUFFER = 1 << 20
batch = "".join(f"neigh replace 10.77.{a}.{b} lladdr 52:54:00:01:{a:02x}:{b:02x} dev br0 nud permanent\\n"
                for a in range(1, 3) for b in range(1, 201))
subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
heard = set(table.read())
assert len(heard) == 400, f"the table still has what was missed: {len(heard)}"
print("all held")
"""


def test_kernels_table_is_heard_and_nothing_is_missed() -> None:
    """In a network namespace of its own; more news than the socket holds is found in the table."""
    done = run_in_network(KERNEL)
    assert done.stdout == "all held\n", done.stderr
