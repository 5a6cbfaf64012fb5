# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VLANs on a kernel that has them: a guest's frames have the tag on the wire, and frames of no other tag reach it.

A node is a network namespace of the machine.  Its card and its guests are pairs of devices, whose other ends are the
wire and what a guest has.
"""

from __future__ import annotations

import json
import typing as t

import pytest

from .conftest import MachineSite

pytestmark = pytest.mark.full

PROGRAM = r"""
import json, pathlib, re, socket, struct, subprocess, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import cards, nft_rules, vlans
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network.reachable import Reach
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import guest_networks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

ALL, AUXDATA, HAS_TAG = b"\xff" * 6, 8, 1 << 4


def run(line):
    subprocess.run(line.split(), check=True, timeout=300)


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def question(of, address, about, to=ALL, tag=0):
    # ARP (RFC 826), with a tag of IEEE 802.1Q
    head = to + mac(of) + (struct.pack("!HH", 0x8100, tag) if tag else b"")
    body = struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + mac(of) + socket.inet_aton(address) + bytes(6)
    return head + body + socket.inet_aton(about) + bytes(20)


class Ear:
    def __init__(self, device):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((device, 0))
        self.socket.setsockopt(263, AUXDATA, 1)  # SOL_PACKET
        self.socket.settimeout(300)

    def send(self, frame):
        self.socket.send(frame)

    def until(self, last):
        # the tags and subjects of all questions that come, up to that about `last`
        found = []
        while not found or found[-1][1] != last:
            frame, extra, _flags, where = self.socket.recvmsg(4096, 200)
            if where[2] == socket.PACKET_OUTGOING:
                continue
            status, tci = 0, 0
            for level, kind, data in extra:
                if (level, kind) == (263, AUXDATA):
                    status, _len, _snap, _mac, _net, tci, _tpid = struct.unpack("IIIHHHH", data[:20])
            tag = tci & 0xFFF if status & HAS_TAG else 0
            if frame[12:14] == b"\x81\x00":
                tag, frame = struct.unpack("!H", frame[14:16])[0], frame[:12] + frame[16:]
            if frame[12:14] == b"\x08\x06":
                found.append([tag, socket.inet_ntoa(frame[38:42])])
        return found

    def heard(self):
        self.socket.settimeout(0)
        found = []
        try:
            while True:
                frame, where = self.socket.recvfrom(4096)
                if where[2] != socket.PACKET_OUTGOING and b"\x08\x06" in frame[12:18]:
                    found.append(socket.inet_ntoa(frame[38:42]))
        except BlockingIOError:
            return found


device, place = sys.argv[1:]
lines = ["one vlan device=%s tag=120 addresses=10.11.0.0/16", "two vlan device=%s tag=121 addresses=10.12.0.0/16"]
networks = tuple(guest_networks.read_line(line % device) for line in lines)
settings = NodeSettings("n1", 1, run_dir=pathlib.Path(place), bridge="br9", networks=networks, confine_guests=True)
found = {"refused": []}
run("ip link add trunk type veth peer name wire")
run("ip link set wire up")
run("ip link set trunk up")
if device != "trunk":
    run(f"ip link add {device} type bridge")
    run(f"ip link set trunk master {device}")
# a node that refuses says what to do: until it refuses no more
while len(found["refused"]) < 9:
    try:
        cards.check_networks(networks)
        break
    except NodeFault as fault:
        found["refused"].append([fault.why, fault.hint])
        run(fault.hint.replace("UPLINK", "trunk"))
guests = []
for slot, network in enumerate(networks, 1):
    [card] = cards.cards_of([network], slot, 0, "7.head.1", settings)
    nft_rules.apply_rules([card.guest], Reach("192.0.2.1", (), (), (), ()), settings)
    vlans.create([network], settings, Deadline.after(60))
    run(f"ip link add {card.tap} type veth peer name end{slot}")
    run(f"ip link set {card.tap} master {card.bridge} up")
    run(f"ip link set end{slot} address {card.mac} up")
    guests.append(card)
vlans.create(networks, settings, Deadline.after(60))
first, second = guests
wire, one, two, bridge = Ear("wire"), Ear("end1"), Ear("end2"), Ear(first.bridge)
stranger = "02:00:00:00:00:07"
# out: what the guest sends with a tag of its own, or as another, is not on the wire before what it may send
one.send(question(first.mac, first.address, "10.99.0.1", tag=121))
one.send(question(first.mac, first.address, "10.99.0.2", tag=120))
one.send(question(stranger, first.address, "10.99.0.3"))
one.send(question(first.mac, second.address, "10.99.0.4"))
one.send(question(first.mac, first.address, "10.11.0.5"))
two.send(question(second.mac, second.address, "10.12.0.6"))
found["wire"] = wire.until("10.12.0.6")
# in: another tag, and none
wire.send(question(stranger, "10.11.9.9", "10.99.1.1", tag=121))
wire.send(question(stranger, "10.11.9.9", "10.99.1.2", tag=122))
wire.send(question(stranger, "10.11.9.9", "10.99.1.3"))
own = mac(pathlib.Path(f"/sys/class/net/{first.bridge}/address").read_text().strip())
wire.send(question(stranger, "10.11.9.9", "10.99.1.4", to=own, tag=120))
wire.send(question(stranger, "10.11.9.9", "10.11.1.5", tag=120))
found["one"] = one.until("10.11.1.5")
found["two"] = two.until("10.99.1.1")
found["node"] = bridge.heard()
found["bridge"], found["addresses"] = first.bridge, subprocess.run(
    ["ip", "-brief", "address", "show", "dev", first.bridge], capture_output=True, text=True, check=True
).stdout.split()[2:]
# listed no more: they stay while a guest is there
unlisted = NodeSettings("n1", 1, run_dir=pathlib.Path(place), bridge="br9", networks=networks[1:])
found["stays"] = vlans.tidy(unlisted)
run("ip link del end1")
found["goes"] = vlans.tidy(unlisted)
found["left"] = sorted(path.name for path in pathlib.Path("/sys/class/net").glob("vt[bv]*"))
print(json.dumps(found))
"""
"""A node's own namespace: called with the device that carries the VLANs, and a directory."""
OF_A_BRIDGE = [
    ["is down", "ip link set br7 up"],
    ["does not filter VLANs, so what is at any of its ports could send with any tag",
     "ip link set br7 type bridge vlan_filtering 1"],
    ["does not take part in VLAN 120 itself", "bridge vlan add dev br7 vid 120 self"],
    ["has no port that carries VLAN 120 with its tag", "bridge vlan add dev UPLINK vid 120"],
    ["does not take part in VLAN 121 itself", "bridge vlan add dev br7 vid 121 self"],
    ["has no port that carries VLAN 121 with its tag", "bridge vlan add dev UPLINK vid 121"],
]  # fmt: skip


@pytest.mark.parametrize(("device", "refused"), [("trunk", []), ("br7", OF_A_BRIDGE)])
def test_frames_of_guests_have_their_tag_on_the_wire_and_those_of_no_other_tag_reach_them(
    site: MachineSite, device: str, refused: list[t.Any]
) -> None:
    """On a card, and on a bridge that filters VLANs, after what its refusals say was done."""
    found = json.loads(site.machine_python(PROGRAM, device, f"/run/vlans-{device}"))
    assert found["refused"] == refused
    assert found["wire"] == [[120, "10.11.0.5"], [121, "10.12.0.6"]]
    assert found["one"] == [[0, "10.11.1.5"]]
    assert found["two"] == [[0, "10.99.1.1"]]
    assert (found["node"], found["addresses"]) == ([], [])
    assert (found["stays"], found["goes"]) == ([], [f"bridge {found['bridge']} of a VLAN"])
    assert [name for name in found["left"] if found["bridge"][3:] in name] == []
    assert len(found["left"]) == 2
