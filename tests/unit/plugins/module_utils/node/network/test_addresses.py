# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of guests: what leases, the static map and a real kernel's neighbour table say."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import addresses
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from hypothesis import given
from hypothesis import strategies as st

MAC = "52:54:00:00:01:01"
DNSMASQ = f"""1795180000 {MAC} 10.77.0.100 vcn1-1 01:{MAC}
0 52:54:00:00:01:02 10.77.0.101 * *
1795170000 52:54:00:00:01:03 10.77.0.102 vcn1-3 *
duid 00:01:00:01:2e:6f
1795180000 05789 fd00::1234 vcn1-1 00:01
broken
"""
LIBVIRT = """[{"ip-address": "192.168.122.5", "mac-address": "52:54:00:00:01:01", "expiry-time": 1795180000},
{"ip-address": "192.168.122.6", "mac-address": "52:54:00:00:01:02", "expiry-time": 1795170000}, 7, {}]"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (DNSMASQ, ((MAC, "10.77.0.100"), ("52:54:00:00:01:02", "10.77.0.101"))),
        (LIBVIRT, ((MAC, "192.168.122.5"),)),
        ("[", ()),
        ("", ()),
        ("\0\xff\n", ()),
    ],
)
def test_only_leases_that_are_valid_count(
    tmp_path: pathlib.Path, text: str, found: tuple[tuple[str, str], ...]
) -> None:
    (tmp_path / "leases").write_text(text)
    assert addresses.read_leases(tmp_path / "leases", now=1795175000.0) == found


OLD, NEW = "10.77.0.100", "10.77.0.200"
TWO_LEASES = {
    "dnsmasq": f"1795180000 {MAC} {OLD} vcn1-1 *\n1795190000 {MAC} {NEW} vcn1-1 *\n",
    "dnsmasq, without end": f"1795180000 {MAC} {OLD} vcn1-1 *\n0 {MAC} {NEW} vcn1-1 *\n",
    "dnsmasq, another between": f"1795180000 {MAC} {OLD} a *\n0 52:54:00:00:01:02 {OLD} b\n1795190000 {MAC} {NEW} a *",
    "libvirt": f"""[{{"ip-address": "{OLD}", "mac-address": "{MAC}", "expiry-time": 1795180000}},
{{"ip-address": "{NEW}", "mac-address": "{MAC}", "expiry-time": 1795190000}}]""",
}


@pytest.mark.parametrize("text", TWO_LEASES.values(), ids=TWO_LEASES.keys())
def test_leases_of_one_mac_begin_with_the_one_that_lasts_longest(tmp_path: pathlib.Path, text: str) -> None:
    """A server keeps an address that it gave before until its time is over."""
    (tmp_path / "leases").write_text(text)
    found = addresses.read_leases(tmp_path / "leases", now=1795175000.0)
    assert [address for mac, address in found if mac == MAC] == [NEW, OLD]


def test_leases_of_one_mac_are_ranked_over_all_files(tmp_path: pathlib.Path) -> None:
    far = 10**11
    (tmp_path / "one").write_text(f"{far} {MAC} {OLD} vcn1-1 *\n")
    (tmp_path / "other").write_text(f"{far + 1} {MAC} {NEW} vcn1-1 *\n")
    with addresses.Neighbours([MAC], leases=[tmp_path / "one", tmp_path / "other"]) as search:
        assert [candidate.address for _mac, candidate in search.candidates()] == [NEW, OLD]
    found = addresses.discover(MAC, timeout_s=5, leases=[tmp_path / "one", tmp_path / "other"])
    assert found == addresses.Candidate(NEW, "lease")


def test_lease_of_ipv4_comes_before_one_of_ipv6(tmp_path: pathlib.Path) -> None:
    rows = [("fd00::5", 1795190000), (OLD, 1795180000)]
    entries = [{"ip-address": address, "mac-address": MAC, "expiry-time": expiry} for address, expiry in rows]
    (tmp_path / "leases").write_text(json.dumps(entries))
    assert addresses.read_leases(tmp_path / "leases", now=1795175000.0) == ((MAC, OLD), (MAC, "fd00::5"))


@pytest.mark.parametrize(
    "name",
    [
        "cn2",
        "52:54:00:00:01:02",
        "10.77.0.12",
        "$(reboot)",
        "\x1b]0;x\x07",
        "x\r0 52:54:00:00:01:02 10.77.0.12 y",
        "[",
        "0 52:54:00:00:01:02 10.77.0.12 x",
    ],
)
def test_a_name_in_a_lease_says_nothing(tmp_path: pathlib.Path, name: str) -> None:
    """A guest chooses it, and it may be anything: the card and the address before it are the server's word."""
    (tmp_path / "leases").write_bytes(f"0 {MAC} 10.77.0.100 {name} 01:{MAC}\n".encode())
    assert addresses.read_leases(tmp_path / "leases") == ((MAC, "10.77.0.100"),)


def test_missing_file_of_leases_has_none(tmp_path: pathlib.Path) -> None:
    assert addresses.read_leases(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.77.0.5", "10.77.0.5"),
        ("FD00::0005", "fd00::5"),
        ("127.0.0.1", None),
        ("::1", None),
        ("fe80::1", None),
        ("169.254.3.4", None),
        ("224.0.0.1", None),
        ("0.0.0.0", None),
        ("255.255.255.255", None),
        ("10.77.0", None),
        ("10.77.0.5; reboot", None),
        ("", None),
        (None, None),
    ],
)
def test_address_at_which_no_guest_can_be_reached_is_none(text: object, address: str | None) -> None:
    assert addresses.usable_address(text) == address


@pytest.mark.parametrize(
    "text", ["52-54-00-00-01-01", "5254.0000.0101", "52:54:0:0:1:1", "52:54:00:00:01:01", "525400000101"]
)
def test_mac_address_has_one_spelling(text: str) -> None:
    assert addresses.normal_mac(text) == MAC


@pytest.mark.parametrize("text", ["", "vcn1-1", "52:54:00:00:01", "52:54:00:00:01:01:02:03", "52:54:00:00:01:0g"])
def test_text_that_is_no_mac_address_is_refused(text: str) -> None:
    with pytest.raises(VTorqueError, match="MAC address"):
        addresses.normal_mac(text)


@pytest.mark.parametrize("text", ["52:54:00:00:01:03", "10:11:12:13:14:15", "59:59:59:59:59:59", "99:00:00:00:00:01"])
def test_number_that_yaml_makes_of_a_mac_address_is_refused(text: str) -> None:
    """Ansible makes text of the number; it has fewer digits than a MAC address, and is not filled up with zeros."""
    number = yaml.safe_load(text)
    assert isinstance(number, int)
    with pytest.raises(VTorqueError) as caught:
        addresses.normal_mac(str(number))
    assert f"{number}: is a number, which YAML makes of digits and colons, as it reads {text}" in str(caught.value)
    assert "in quotes" in str(caught.value)


@given(st.integers(0, 10**18))
def test_digits_alone_are_a_mac_address_only_when_there_are_twelve(number: int) -> None:
    text = str(number)
    if len(text) == 12:
        assert addresses.normal_mac(text).replace(":", "") == text
    else:
        with pytest.raises(VTorqueError, match="is a number"):
            addresses.normal_mac(text)


def script(tmp_path: pathlib.Path, body: str) -> pathlib.Path:
    path = tmp_path / "map"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_static_map_is_asked_by_node_guests_per_node_and_number(tmp_path: pathlib.Path) -> None:
    path = script(tmp_path, '[ "$*" = "cn1 2 3" ] && echo 10.77.1.3')
    assert addresses.run_static_map(path, "cn1", 2, 3, Deadline.after(30)) == "10.77.1.3"


@pytest.mark.parametrize(
    ("body", "within_s", "message"),
    [
        ("echo 10.77.1.3; exit 3", 30, "status 3"),
        ("echo unknown node", 30, "no address"),
        ("echo 127.0.0.1", 30, "no address"),
        ("exec sleep 600", 1, "no answer"),
    ],
)
def test_static_map_that_gives_no_address_is_the_sites_fault(
    tmp_path: pathlib.Path, body: str, within_s: float, message: str
) -> None:
    with pytest.raises(SiteFault, match=message):
        addresses.run_static_map(script(tmp_path, body), "cn1", 1, 1, Deadline.after(within_s))


def test_static_map_that_is_not_there_is_the_sites_fault(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="ip_to_mac_script"):
        addresses.run_static_map(tmp_path / "none", "cn1", 1, 1, Deadline.after(1))


@pytest.mark.parametrize("which", ["file", "directory"])
def test_a_static_map_that_others_can_write_is_not_run(tmp_path: pathlib.Path, which: str) -> None:
    path = script(tmp_path, f"touch {tmp_path}/ran; echo 10.77.1.3")
    (path if which == "file" else tmp_path).chmod(0o777)
    with pytest.raises(SiteFault, match="others than root"):
        addresses.run_static_map(path, "cn1", 1, 1, Deadline.after(30))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["nobridge0", "lo"])
def test_bridge_that_is_missing_or_none_is_the_nodes_fault(name: str) -> None:
    with pytest.raises(NodeFault, match=name):
        addresses.bridge_index(name)


def test_a_lease_that_appears_wakes_the_search(tmp_path: pathlib.Path) -> None:
    """The file is replaced, as libvirt's helper does it, after the search has begun."""
    leases = tmp_path / "br0.status"
    with addresses.Neighbours([MAC], leases=[leases]) as search:
        assert search.candidates() == ()
        (tmp_path / "new").write_text(f"0 {MAC} 10.77.0.100 vcn1-1 *\n")
        (tmp_path / "new").rename(leases)
        assert search.candidates() == ((MAC, addresses.Candidate("10.77.0.100", "lease")),)
        assert search.candidates() == ()


def test_a_search_that_finds_nothing_says_where_it_looked(tmp_path: pathlib.Path) -> None:
    (tmp_path / "leases").write_text("0 52:54:00:00:01:09 10.77.0.109 other *\n")
    with pytest.raises(SiteFault) as caught:
        addresses.discover(MAC, timeout_s=0.05, leases=[tmp_path / "leases"])
    assert MAC in caught.value.what
    assert "1 valid leases of others" in caught.value.why


KERNEL = """
import subprocess, sys, threading
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import addresses as neighbours
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
LATER = Deadline(float("inf"))
MAC, OTHER = "52:54:00:00:01:01", "52:54:00:00:01:02"
def ip(words): subprocess.run(["ip", *words.split()], check=True)
def neigh(words): ip(f"neigh replace {words}")
subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
for bridge, address in (("br0", "10.77.0.1/24"), ("br1", "10.78.0.1/24")):
    ip(f"link add {bridge} type bridge")
    ip(f"addr add {address} dev {bridge}")
    ip(f"link set {bridge} up")
assert neighbours.node_address("br0", LATER) == "10.77.0.1"
ip("link add br2 type bridge")
for address, found in (("", None), ("169.254.7.7/16", None), ("fd00::7/64", "fd00::7"), ("10.79.0.1/24", "10.79.0.1")):
    if address:
        ip(f"addr add {address} dev br2")
    try:
        assert neighbours.node_address("br2", LATER) == found, "what a guest can use, IPv4 before IPv6"
    except NodeFault as error:
        assert found is None and "has no address" in error.why
neigh(f"10.77.0.9 lladdr {MAC} dev br0 nud stale")
neigh(f"10.77.0.8 lladdr {OTHER} dev br0 nud reachable")
with neighbours.Neighbours([MAC], bridge="br0") as search:
    assert search.candidates() == (), "an entry from before, and another guest's, are none"
    neigh(f"10.78.0.5 lladdr {MAC} dev br1 nud reachable")
    neigh("10.77.0.6 dev br0 nud failed")
    assert search.candidates() == (), "another bridge and a failed entry are none"
    neigh(f"10.77.0.5 lladdr {MAC} dev br0 nud stale")
    assert search.candidates() == ((MAC, neighbours.Candidate("10.77.0.5", "neighbour")),)
    neigh(f"10.77.0.9 lladdr {MAC} dev br0 nud reachable")
    assert search.candidates() == ((MAC, neighbours.Candidate("10.77.0.9", "neighbour")),)
    neigh(f"10.77.0.9 lladdr {MAC} dev br0 nud stale")
    assert search.candidates() == (), "what was told is not told again"
assert sorted(neighbours.flush({MAC}, "br0", LATER)) == ["10.77.0.5", "10.77.0.9"]
shown = subprocess.run(["ip", "neigh", "show", "dev", "br0"], check=True, capture_output=True, text=True).stdout
assert MAC not in shown and OTHER in shown
threading.Timer(0.2, neigh, [f"10.77.0.7 lladdr {MAC} dev br0 nud reachable"]).start()
assert neighbours.discover("52-54-00-00-01-01", bridge="br0", timeout_s=60).address == "10.77.0.7"
print("all held")
"""


def test_the_kernels_table_is_heard_fresh_entries_of_this_bridge_alone() -> None:
    """In a network namespace of its own, with entries as `ip neigh` makes them."""
    done = subprocess.run(
        ["unshare", "--map-root-user", "--net", "--mount", sys.executable, "-c", KERNEL],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout == "all held\n", done.stderr
