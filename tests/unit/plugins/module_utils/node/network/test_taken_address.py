# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who answers for an address is found by a real kernel's ARP."""

from __future__ import annotations

from .kernel import run_in_network

KERNEL = """
import ctypes, os, signal, socket, subprocess
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import taken_address
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
def ip(words): subprocess.run(["ip", *words.split()], check=True)
ip("link add br0 type bridge")
ip("addr add 10.77.0.1/16 dev br0")
ip("link add port type veth peer name other")
ip("link set port master br0")
for name in ("br0", "port", "lo"):
    ip(f"link set {name} up")
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:  # a host of its own at the bridge
    assert ctypes.CDLL(None).unshare(0x40000000) == 0  # CLONE_NEWNET (sched.h); os.unshare came with Python 3.12
    os.write(writing, b".")
    signal.pause()
os.read(reading, 1)
ip(f"link set other netns {pid}")
enter = ["nsenter", "-t", str(pid), "-n", "ip"]
for words in ("addr add 10.77.0.5/16 dev other", "link set other address 52:54:00:99:99:99", "link set other up"):
    subprocess.run([*enter, *words.split()], check=True)
later = Deadline.after(60)
own = {"10.77.0.5": "52:54:00:00:01:01", "10.77.0.6": "52:54:00:00:01:02", "fd00::5": "52:54:00:00:01:03"}
found = {}
while not found and later.left_s() > 0:  # a busy machine may not answer within one probe
    found = taken_address.find_holders(own, "br0", later)
assert found == {"10.77.0.5": "52:54:00:99:99:99"}
ip("neigh replace 10.77.0.6 lladdr 52:54:00:88:88:88 dev br0 nud stale")
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL (if_ether.h)
wire.bind(("port", 0))
wire.setblocking(False)
assert taken_address.find_holders({"10.77.0.6": own["10.77.0.6"]}, "br0", later) == {}, "what was known is old"
sent = []
try:
    while True:
        sent.append(wire.recv(2000))
except BlockingIOError:
    pass
requests = [frame for frame in sent if frame[12:14] == b"\\x08\\x06" and frame[38:42] == bytes((10, 77, 0, 6))]
assert len(requests) >= taken_address.REQUESTS, "one that is lost is not the only one"
assert taken_address.find_holders({"10.77.0.5": "52:54:00:99:99:99"}, "br0", later) == {}, "it is its own"
assert taken_address.find_holders({}, "br0", later) == {}
os.kill(pid, 9)
print("all held")
"""


def test_host_that_has_got_an_address_is_found() -> None:
    done = run_in_network(KERNEL)
    assert done.stdout == "all held\n", done.stderr
