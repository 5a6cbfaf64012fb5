# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which addresses of a host others are told of, by real interfaces in a network namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

PROGRAM = COLLECTION_DIR.parent / "roles/common/files/own_addresses.py"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")


def addresses_of(*addresses: str) -> list[str]:
    """What a host with these addresses (arguments of `ip address add`) tells; its privacy extensions are on."""
    lines = [
        "set -e", "ip link set lo up", "ip link add e0 type veth peer name e1",
        "echo 2 >/proc/sys/net/ipv6/conf/e0/use_tempaddr", "ip link set e0 up", "ip link set e1 up",
        *(f"ip address add {address} dev e0" for address in addresses), 'exec "$1" "$2"',
    ]  # fmt: skip
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", "\n".join(lines), "sh", sys.executable, PROGRAM],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return list(json.loads(done.stdout))


def test_floating_address_is_left_out() -> None:
    assert addresses_of(
        "10.1.0.7/24",
        "10.1.0.8/24",  # secondary, as of pacemaker
        "10.1.0.100/32",  # as of keepalived
        "2001:db8::7/64 nodad",
        "2001:db8:1::7/64 mngtmpaddr valid_lft 3000 preferred_lft 2000 nodad",  # brings a temporary one
        "2001:db8::100/128 preferred_lft 0 nodad",
        "2001:db8::200/128 nodad",
        "192.168.122.1/24",
    ) == ["10.1.0.7", "2001:db8:1::7", "2001:db8::7"]


def test_host_that_has_no_others_is_known_by_those_of_no_network() -> None:
    assert addresses_of("10.1.0.100/32", "2001:db8::200/128 nodad") == ["10.1.0.100", "2001:db8::200"]


def test_dhcp_address_is_the_hosts_own() -> None:
    # as dhclient and NetworkManager set it (RFC 8415 tells no length)
    given = "2001:db8::300/128 valid_lft 3000 preferred_lft 2000 nodad"
    assert addresses_of("2001:db8::7/64 nodad", given) == ["2001:db8::300", "2001:db8::7"]


def test_host_without_any_tells_none() -> None:
    assert addresses_of() == []
