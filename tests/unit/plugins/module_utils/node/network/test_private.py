# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks of single jobs, on two nodes that are network namespaces of the test's own.

Each job has a guest on each node: a device at its bridge, and its other end in the test's hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import private, reachable
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import guest_networks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

MINE = guest_networks.read_line("mine vxlan addresses=172.31.0.0/16")
WHERE = {"n0": "192.0.2.10", "n1": "192.0.2.11"}
FIRST, SECOND = "7.head.1", "8.head.1"
PROGRAM = f"""
import json, pathlib, sys
sys.path[:0] = {sys.path!r}
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import guest_networks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import nft_rules, private, reachable
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network.reachable import Reach
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

do, key, place, run_dir = sys.argv[1:]
settings = NodeSettings(f"n{{place}}", 1 + int(place), run_dir=pathlib.Path(run_dir), bridge="br0", confine_guests=True)
reachable.find_addresses = lambda names, _deadline: {{name: ({WHERE!r}[name],) for name in names}}
mine = guest_networks.read_line({guest_networks.format_line(MINE)!r})
other = private.Peer(f"n{{1 - int(place)}}", (private.mac_of(1 - int(place), 1),))
try:
    if do == "create":
        private.create(key, [(mine, (other,))], settings, Deadline.after(60))
        guest = nft_rules.Guest("vtq" + key[0] + "n1", private.mac_of(int(place), 1), "172.31.0.1", private=True)
        nft_rules.apply_rules([guest], Reach("192.0.2.1", (), (), (), ()), settings)
        print(json.dumps([]))
    if do == "remove":
        print(json.dumps(private.remove(key, settings)))
    if do == "look":
        print(json.dumps([private.keys(settings), private.find_lost(settings)]))
except VTorqueError as error:
    print(json.dumps(str(error)))
"""
"""Called with what to do, the key of a start, which of the two nodes this is, and its directory."""
HEAR = """
import select, socket, sys
sockets = {}
for name in sys.argv[1:]:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    opened.bind((name, 0))
    sockets[opened] = name
print("listening", flush=True)
while True:
    for opened in select.select(list(sockets), [], [])[0]:
        frame = opened.recv(4096)
        if b"of-" in frame:
            print(sockets[opened], frame[frame.index(b"of-"):].split(b"\\0")[0].decode(), flush=True)
"""
"""Prints the name of each device on which one of our frames comes, and what is in the frame."""
SEND = """
import socket, sys
name, to, own, words = sys.argv[1:]
opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
opened.bind((name, 0))
opened.send(bytes.fromhex(to.replace(":", "") + own.replace(":", "") + "88b5") + words.encode() + bytes(50))
"""
"""Sends a frame of a type that is for experiments (IEEE 802)."""
ALL = "ff:ff:ff:ff:ff:ff"


class Nodes:
    """Two nodes, with a cable between them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.names = [f"vtp-{os.getpid()}-{place}" for place in (0, 1)]
        self._directory = directory

    def run(self, place: int, *command: str) -> str:
        line = ["/usr/sbin/ip", "netns", "exec", self.names[place], *command]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ip(self, place: int, message: str) -> None:
        self.run(place, "/usr/sbin/ip", *message.split())

    def call(self, do: str, key: str, place: int) -> t.Any:
        directory = self._directory / str(place)
        return json.loads(self.run(place, sys.executable, "-c", PROGRAM, do, key, str(place), str(directory)))

    def make(self) -> None:
        for name in self.names:
            subprocess.run(["/usr/sbin/ip", "netns", "add", name], check=True, timeout=20)
        self.ip(0, f"link add wire type veth peer name wire netns {self.names[1]}")
        for place, address in enumerate(WHERE.values()):
            self.ip(place, "link add br0 type bridge")
            self.ip(place, "link set wire master br0 up")
            self.ip(place, "link set br0 up")
            self.ip(place, f"addr add {address}/24 dev br0")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["/usr/sbin/ip", "netns", "del", name], check=False, timeout=20)

    def guest(self, key: str, place: int) -> str:
        """Connect a guest of a start; return its end."""
        tap, end = f"vtq{key[0]}n1", f"end{key[0]}"
        self.ip(place, f"link add {tap} type veth peer name {end}")
        self.ip(place, f"link set {tap} master {private.bridge_of(key, 'mine')} up")
        self.ip(place, f"link set {end} up")
        return end

    def send(self, key: str, place: int, message: str, to: str = ALL, own: str = "") -> None:
        own = own or private.mac_of(place, 1)
        self.run(place, sys.executable, "-c", SEND, f"end{key[0]}", to, own, message)

    @contextlib.contextmanager
    def hearing(self, place: int, *devices: str) -> t.Iterator[t.Callable[..., list[str]]]:
        """What comes on devices: a function that waits for some lines, in any order, and returns all lines until then.

        Frames of one device come in their order; those of two may be read in any.
        """
        command = ["/usr/sbin/ip", "netns", "exec", self.names[place], sys.executable, "-c", HEAR, *devices]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"

            def until(*lines: str) -> list[str]:
                found: list[str] = []
                while not {*lines} <= {*found}:
                    found.append(t.cast("t.IO[str]", process.stdout).readline().strip())
                    assert found[-1], found
                return found

            try:
                yield until
            finally:
                process.kill()


@pytest.fixture
def nodes(tmp_path: pathlib.Path) -> t.Iterator[Nodes]:
    """Two nodes, on each a guest of each of two jobs, which have a network of the same name."""
    made = Nodes(tmp_path)
    try:
        made.make()
        for place in (0, 1):
            for key in (FIRST, SECOND):
                assert made.call("create", key, place) == []
                made.guest(key, place)
        yield made
    finally:
        made.remove()


def test_guests_of_a_job_hear_each_other_over_the_nodes_and_other_jobs_hear_nothing(nodes: Nodes) -> None:
    """Neither what is for all, nor what is for a guest of that MAC address, which both jobs have."""
    with nodes.hearing(1, "end7", "end8") as there, nodes.hearing(0, "end8") as here:
        nodes.send(FIRST, 0, "of-seven-to-all")
        nodes.send(FIRST, 0, "of-seven-to-one", private.mac_of(1, 1))
        # afterwards the other job speaks, so that silence before it is no lack of patience
        nodes.send(SECOND, 0, "of-eight-to-one", private.mac_of(1, 1))
        nodes.send(SECOND, 1, "of-eight-to-all")
        of_eight = {"end8 of-eight-to-all", "end8 of-eight-to-one"}
        heard = there("end7 of-seven-to-all", "end7 of-seven-to-one", "end8 of-eight-to-one")
        # a device shows its own frames, too, perhaps before those that came over the tunnel
        assert {line for line in heard if line.startswith("end8")} <= of_eight
        # on its own node the first job is as silent
        assert {*here("end8 of-eight-to-all")} <= of_eight


def test_table_is_written_and_nothing_is_learned(nodes: Nodes) -> None:
    tunnel = f"vtx{private.number_of(FIRST, 'mine'):06x}"
    before = nodes.run(0, "/usr/sbin/bridge", "fdb", "show", "dev", tunnel)
    assert f"00:00:00:00:00:00 dst {WHERE['n1']} self permanent" in before
    assert f"{private.mac_of(1, 1)} dst {WHERE['n1']} self static" in before
    with nodes.hearing(0, "end7") as here:
        nodes.send(FIRST, 1, "of-seven-back")
        here("end7 of-seven-back")
    assert nodes.run(0, "/usr/sbin/bridge", "fdb", "show", "dev", tunnel).count(" dst ") == before.count(" dst ")
    (link,) = json.loads(nodes.run(0, "/usr/sbin/ip", "-json", "-d", "link", "show", tunnel))
    assert link["mtu"] == 1450
    for device in (tunnel, private.bridge_of(FIRST, "mine")):
        (row,) = json.loads(nodes.run(0, "/usr/sbin/ip", "-json", "address", "show", "dev", device))
        assert row["addr_info"] == []
    assert "group" not in link["linkinfo"]["info_data"]


def test_guest_speaks_as_itself_and_its_node_does_not_hear_it(nodes: Nodes) -> None:
    bridge = private.bridge_of(FIRST, "mine")
    mac = nodes.run(0, "cat", f"/sys/class/net/{bridge}/address").strip()
    # what a bridge delivers to its own node comes on the bridge's device, unless it is dropped before
    with nodes.hearing(0, bridge, "end7") as here, nodes.hearing(1, "end7") as there:
        nodes.send(FIRST, 0, "of-another", own="52:54:00:00:00:01")
        nodes.send(FIRST, 0, "of-me-to-the-node", mac)
        nodes.send(FIRST, 0, "of-me-to-all")
        assert there("end7 of-me-to-all") == ["end7 of-me-to-all"]
        nodes.send(FIRST, 1, "of-the-other-to-all")
        assert [line for line in here("end7 of-the-other-to-all") if line.startswith(bridge)] == []


def test_network_goes_with_its_start_and_no_other_does(nodes: Nodes) -> None:
    assert nodes.call("look", "-", 0) == [[FIRST, SECOND], []]
    number = f"{private.number_of(FIRST, 'mine'):06x}"
    assert nodes.call("remove", FIRST, 0) == [f"private network {number}"]
    assert nodes.call("remove", FIRST, 0) == []
    assert nodes.call("look", "-", 0) == [[SECOND], []]
    with nodes.hearing(1, "end8") as there:
        nodes.send(SECOND, 0, "of-eight-still")
        there("end8 of-eight-still")
    # what a start left whose word is lost is found as nobody's
    number = f"{private.number_of(SECOND, 'mine'):06x}"
    nodes.run(0, "rm", str(nodes._directory / "0/networks" / SECOND))
    assert nodes.call("look", "-", 0) == [[], [f"vtp{number}", f"vtx{number}"]]


def test_second_network_of_a_number_on_a_node_is_refused_and_harms_none(nodes: Nodes) -> None:
    taken = nodes.call("create", FIRST, 0)
    assert "File exists" in taken
    with nodes.hearing(1, "end7") as there:
        nodes.send(FIRST, 0, "of-seven-still")
        there("end7 of-seven-still")


def test_numbers_and_mac_addresses_follow_from_start_name_and_rank() -> None:
    numbers = {private.number_of(f"{job}.head.{start}", "mine") for job in range(200) for start in (1, 2)}
    assert len(numbers) == 400
    assert all(0 < number < 1 << 24 for number in numbers)
    assert private.number_of(FIRST, "mine") != private.number_of(FIRST, "yours")
    assert private.mac_of(0x12345, 2) == "02:76:72:01:23:45"
    assert len(private.bridge_of(FIRST, "mine")) <= 15


@pytest.mark.parametrize("address", [(), ("127.0.1.1",)])
def test_node_whose_address_is_not_known_is_the_sites_fault(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, address: tuple[str, ...]
) -> None:
    monkeypatch.setattr(reachable, "find_addresses", lambda _names, _deadline: {"n1": address})
    settings = NodeSettings("n0", 1, run_dir=tmp_path)
    with pytest.raises(SiteFault, match="node n1: has no IPv4 address here"):
        private.create(FIRST, [(MINE, (private.Peer("n1", ()),))], settings, Deadline.after(20))
    assert private.keys(settings) == ()
