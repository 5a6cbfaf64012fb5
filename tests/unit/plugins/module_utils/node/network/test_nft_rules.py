# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of guests on the bridge, as the kernel takes them, in a network namespace of the test's own."""

from __future__ import annotations

import ipaddress
import os
import pathlib
import re
import struct
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import nft_rules
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network.nft_rules import Guest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network.reachable import Reach
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

FIRST, SECOND = Guest("vtq1", "52:54:00:00:01:01"), Guest("vtq2", "52:54:00:00:01:02")
FIXTURES = pathlib.Path(__file__).resolve().parents[5] / "fixtures"
WHOM = Reach("10.77.0.11", ("10.77.0.1",), ("10.77.0.2",), (), ("10.9.0.0/16",))


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> t.Iterator[NodeSettings]:
    """A node whose packet filter is that of a namespace."""
    name = f"vtq-rules-{os.getpid()}"
    subprocess.run(["/usr/sbin/ip", "netns", "add", name], check=True, timeout=20)
    nft = tmp_path / "nft"
    nft.write_text(f'#!/bin/sh\nexec /usr/sbin/ip netns exec {name} /usr/sbin/nft "$@"\n')
    nft.chmod(0o755)
    yield NodeSettings(node_name="cn1", node_number=1, run_dir=tmp_path / "run", nft=nft)
    subprocess.run(["/usr/sbin/ip", "netns", "del", name], check=True, timeout=20)


def listed(settings: NodeSettings) -> str:
    """All rules, as the kernel has them."""
    done = subprocess.run([settings.nft, "list", "ruleset"], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout


def chain(settings: NodeSettings, name: str) -> str:
    found = re.search(rf"chain {name} {{\n(.*?)\n\t}}", listed(settings), re.DOTALL)
    assert found
    return found[1]


def elements(settings: NodeSettings, name: str) -> set[str]:
    found = re.search(rf"set {name} {{\n[^}}]*elements = {{ (.*?) }}", listed(settings), re.DOTALL)
    return set(found[1].replace(",", " ").split()) if found else set()


def number(address: str) -> str:
    """An address as nft lists what a guest may call itself."""
    return f"{int(ipaddress.IPv4Address(address)):#x}"


def load_again(settings: NodeSettings) -> None:
    """Have nft take its own listing of all rules, as an administrator does who stores and restores them."""
    before = listed(settings)
    subprocess.run([settings.nft, "flush ruleset"], check=True, timeout=20)
    subprocess.run([settings.nft, "-f", "-"], input=before, text=True, check=True, timeout=20)
    assert listed(settings) == before


def test_guests_are_held_again_and_again_and_let_go(settings: NodeSettings) -> None:
    assert nft_rules.list_confined_devices(settings) == ()
    for _again in range(2):
        nft_rules.apply_rules([FIRST, SECOND], WHOM, settings)
        assert nft_rules.list_confined_devices(settings) == ("vtq1", "vtq2")
    assert listed(settings).count("iifname vmap @guests") == 1
    assert nft_rules.let_go(["vtq1", "vtq7"], settings) == ("vtq1",)
    assert nft_rules.let_go(["vtq1"], settings) == ()
    assert nft_rules.list_confined_devices(settings) == ("vtq2",)
    assert "vtq1" not in listed(settings)
    assert nft_rules.let_go(["vtq2"], settings) == ("vtq2",)
    assert "vtq" not in listed(settings).replace("vtorque", "")


def test_removal_after_a_flush_of_all_rules_succeeds(settings: NodeSettings) -> None:
    """As the distribution's own nftables.service does when it starts again; guests of later jobs are held again."""
    nft_rules.apply_rules([FIRST], WHOM, settings)
    subprocess.run([settings.nft, "flush", "ruleset"], check=True, timeout=20)
    assert nft_rules.list_confined_devices(settings) == ()
    assert nft_rules.let_go(["vtq1"], settings) == ()
    nft_rules.apply_rules([SECOND], WHOM, settings)
    assert nft_rules.list_confined_devices(settings) == ("vtq2",)


def test_address_is_bound_when_it_is_known(settings: NodeSettings) -> None:
    nft_rules.apply_rules([FIRST], WHOM, settings)
    its_rules = chain(settings, "vtq1")
    assert f"ether saddr != {FIRST.mac} drop" in its_rules
    for rule in ("ip saddr 0.0.0.0 drop", "@nh,96,32 != @vtq1_own drop", "@nh,112,32 @vtq1_own arp htype 1"):
        assert rule in its_rules
    assert elements(settings, "vtq1_own") == {"0x0"}
    assert "add @vtq1_own" in chain(settings, "vtq1_answers")
    for _again in range(2):
        nft_rules.bind([FIRST._replace(address="10.77.0.100")], settings)
        assert elements(settings, "vtq1_own") == {"0x0", number("10.77.0.100")}
        assert "add @vtq1_own" not in listed(settings)
    # everybody's last rule
    assert its_rules.endswith("goto vtq1_dropped")
    assert re.search(r"counter packets \d+ bytes \d+ drop$", chain(settings, "vtq1_dropped"))


def test_the_batch_systems_ports_are_nobodys_but_a_jobs_own_guests(settings: NodeSettings) -> None:
    nft_rules.apply_rules([FIRST], WHOM, settings)
    lines = [line.strip() for line in chain(settings, "vtq1").splitlines()]
    barred = next(n for n, line in enumerate(lines) if "15001-15004" in line)
    assert "4789" in lines[barred]  # of the packets that carry private networks of jobs
    assert lines.index("ip daddr @vtq1_job accept") < barred
    for later in ("ip daddr @vtq1_hosts accept", "ip daddr 10.9.0.0/16 accept", "ip daddr 10.77.0.1 accept"):
        assert lines.index(later) > barred
    # servers of files are reached for files
    assert lines.index("ip daddr 10.9.0.0/16 accept") < lines.index("tcp dport 22 goto vtq1_dropped")
    assert lines.index("tcp dport 22 goto vtq1_dropped") < lines.index("ip daddr 10.77.0.1 accept")


SEND = """
import socket, struct, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("guest", 0))
for to, protocol, port in (line.split() for line in sys.stdin):
    ends = struct.pack("!HH", 40000, int(port))
    number, more = {"tcp": (6, ("!IIBBHHH", 1, 0, 5 << 4, 2, 1024, 0, 0)), "udp": (17, ("!HH", 8, 0))}[protocol]
    said = ends + struct.pack(*more)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(said), 0, 0, 64, number, 0,
                       socket.inet_aton("10.77.0.100"), socket.inet_aton(to))
    head = head[:10] + struct.pack("!H", ~(sum(struct.unpack("!10H", head)) % 65535) & 65535) + head[12:]
    wire.send(bytes.fromhex("525400000b0b" + "525400000101" + "0800") + head + said)
"""
"""Sends TCP's first packets and UDP's as a guest does, which a bridge takes from its network device."""


def on_the_bridge(settings: NodeSettings) -> list[str]:
    """A guest's network device, with the guest's end of it; returns the words of a command that runs beside them."""
    inside = [*settings.nft.read_text().splitlines()[1].split()[1:5]]
    for message in (
        "link add br0 type bridge", "link add vtq1 type veth peer name guest", "link set vtq1 master br0",
        "link set br0 up", "link set vtq1 up", "link set guest up",
    ):  # fmt: skip
        subprocess.run([*inside, "/usr/sbin/ip", *message.split()], check=True, timeout=20)
    wait_until_forwarding(inside, "vtq1")
    return inside


def wait_until_forwarding(inside: list[str], port: str) -> None:
    """What comes to a bridge's port before that is dropped."""
    deadline = Deadline.after(60)
    state = [*inside, "/usr/sbin/bridge", "link", "show", "dev", port]
    while "state forwarding" not in subprocess.check_output(state, text=True):
        assert not deadline.passed


def test_refused_connections_of_a_guest_are_reported_when_it_is_gone(settings: NodeSettings) -> None:
    """Up to a bound, and of what was for itself alone: not what it may, not what is for everybody."""
    inside = on_the_bridge(settings)
    nft_rules.apply_rules([FIRST, SECOND], WHOM, settings)
    nft_rules.admit([FIRST._replace(address="10.77.0.100")], ["10.77.0.101"], [], settings)
    sent = [
        "10.77.0.101 tcp 4000", "10.9.1.1 tcp 27000", "224.0.0.251 udp 5353",  # its job; the site's; everybody
        "10.8.1.1 tcp 27000", "10.8.1.1 tcp 27000", "10.9.1.1 tcp 15001", "10.77.0.1 tcp 22",
        *(f"10.8.2.{number} udp 514" for number in range(nft_rules.KEPT)),
    ]  # fmt: skip
    command = [*inside, sys.executable, "-c", SEND]
    subprocess.run(command, input="\n".join(sent), text=True, check=True, timeout=20)
    dropped = len(sent) - 2
    deadline = Deadline.after(60)  # the kernel may be late
    while f"counter packets {dropped} " not in chain(settings, "vtq1_dropped"):
        assert not deadline.passed, listed(settings)
    places = "10.77.0.1 tcp 22, 10.8.1.1 tcp 27000, 10.8.2.0 udp 514"
    gone = nft_rules.let_go(["vtq1", "vtq2"], settings)
    assert gone == (f"vtq1 (it was not let go to {places} and {nft_rules.KEPT - 3} more)", "vtq2")


def test_job_is_let_in_when_its_addresses_are_known(settings: NodeSettings) -> None:
    nft_rules.apply_rules([FIRST, SECOND], WHOM, settings)
    both = [FIRST._replace(address="10.77.0.100"), SECOND._replace(address="10.77.0.101")]
    for _again in range(2):
        nft_rules.admit(both, ["10.77.0.100", "10.77.0.101", "fe80::1"], ["10.77.0.12"], settings)
    for guest in both:
        assert elements(settings, f"{guest.device}_job") == {"10.77.0.100", "10.77.0.101"}
        assert elements(settings, f"{guest.device}_hosts") == {"10.77.0.12"}
        assert elements(settings, f"{guest.device}_own") == {"0x0", number(guest.address)}


def test_rules_of_a_former_guest_that_are_still_there_let_the_next_one_reach_nobody(settings: NodeSettings) -> None:
    """An administrator has stored a listing while the guest ran, and loaded it when it was gone."""
    nft_rules.apply_rules([FIRST, SECOND], WHOM, settings)
    nft_rules.admit([FIRST, SECOND], ["10.77.0.100", "10.77.0.101"], ["10.77.0.12"], settings)
    load_again(settings)
    nft_rules.apply_rules([FIRST], WHOM, settings)
    assert elements(settings, "vtq1_job") == elements(settings, "vtq1_hosts") == set()
    assert elements(settings, "vtq2_job") == {"10.77.0.100", "10.77.0.101"}


FRAMES = """
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("guest", 0))
for line in sys.stdin:
    wire.send(bytes.fromhex(line))
"""
OWN, OTHER = "525400000101", "525400000b0b"
OWN_IP, ANOTHERS_IP, ALL = "0a4d0064", "0a4d0063", "ffffffff"  # 10.77.0.100, 10.77.0.99, 255.255.255.255


def frame(kind: str, payload: str, to: str = "ff" * 6) -> str:
    """An Ethernet frame of the guest's, as hexadecimal digits."""
    return to + OWN + kind + payload


def packet(protocol: int, payload: str, to: str, *, fragment: str = "0000", own: str = OWN_IP) -> str:
    """An IPv4 packet in a frame; without its checksum a bridge passes none on (`ip_mc_check_igmp`)."""
    head = f"4500{20 + len(payload) // 2:04x}0001{fragment}40{protocol:02x}%04x{own}{to}"
    arguments = struct.unpack("!10H", bytes.fromhex(head % 0))
    return frame("0800", head % (~(sum(arguments) % 0xFFFF) & 0xFFFF) + payload)


def question(mac: str) -> str:
    """The one for an address, in the name of this MAC address (RFC 2131)."""
    return packet(17, "004400430108" + "0000" + "01010600" + "00" * 24 + mac + "00" * 230, ALL, own="00000000")


def answer(mac: str, address: str, *, op: str = "02", ports: str = "00430044") -> str:
    """Of a server of addresses, to everybody: this one is for this MAC address."""
    report = f"{op}010600" + "00" * 12 + address + "00" * 8 + mac + "00" * 230
    return ("ff" * 6) + "525400000a0a" + "0800" + packet(17, f"{ports}0108" + "0000" + report, ALL, own="0a4d0001")[28:]


def neighbour(mac: str, address: str) -> str:
    """An answer of ARP: this address is at this MAC address."""
    return frame("0806", f"0001080006040002{mac}{address}{OTHER}0a4d000b")


def segment(flags: int, port: int) -> str:
    return f"9c40{port:04x}000000010000000050{flags:02x}040000000000"


LAST_TTL = 65
LAST = question(OWN).replace("00004011", f"0000{LAST_TTL:02x}11", 1)
"""A question that always passes, and is told by its time to live."""
HARMLESS = (question(OWN), neighbour(OWN, OWN_IP), packet(6, segment(0x10, 7000), "0a080101"))
HOSTILE = {
    "an address for somebody": packet(17, "004300440108" + "0000" + "02" + "00" * 239 + "00" * 16, ALL),
    "a question in another's name": question(OTHER),
    "another's address in ARP": neighbour(OWN, ANOTHERS_IP),
    "another's MAC address in ARP": neighbour(OTHER, OWN_IP),
    "a router of IPv6": frame(
        "86dd", "60000000" + "00103aff" + "fe80" + "00" * 14 + "ff02" + "00" * 13 + "01" + "8600" + "00" * 14
    ),
    "an answer by IPv6": frame("86dd", "60000000" + "00140640" + 2 * ("fd00" + "00" * 14) + segment(0x10, 7000)),
    "another network by its tag": frame("8100", "0001" + "0800" + "45" + "00" * 45),
    "another way by ICMP": packet(1, "05010000" + "0a4d0064" + "00" * 28, "0a4d000b"),
    "a beginning with an end": packet(6, segment(0x03, 7000), "0a080101"),
    "a beginning and urgent": packet(6, segment(0x22, 7000), "0a080101"),
    "the first part of a beginning": packet(6, segment(0x02, 7000)[:16], "0a080101", fragment="2000"),
    "the other part, that looks like an answer": packet(6, segment(0x10, 7000), "0a080101", fragment="0001"),
    "the first part, filled up to look like an answer": frame(
        "0800", "4500001c000120004006" + "0000" + OWN_IP + "0a080101" + segment(0x10, 7000)
    ),
    "the batch system's port in a part": packet(6, segment(0x10, 15001)[:16], "0a090101", fragment="2000"),
    "something that is no TCP and no UDP": packet(47, "00000800" + "00" * 20, "0a080101"),
}  # fmt: skip


@pytest.fixture
def passed(settings: NodeSettings) -> t.Callable[[t.Iterable[str]], int]:
    """Has a guest send frames, and tells how many of them its rules let pass: a chain that comes after them counts.

    It counts from the first call on: before there are rules, the network device speaks for itself.
    """
    inside = on_the_bridge(settings)
    hooked = 'type filter hook prerouting priority 0; iifname != "vtq1" return;'
    later = f"table bridge later {{ chain passed {{ {hooked} ip ttl {LAST_TTL} counter return; counter; }}; }}"
    rounds, before = 0, 0

    def send(frames: t.Iterable[str]) -> int:
        # the kernel may be late, but it changes no order
        nonlocal rounds, before
        if not rounds:
            subprocess.run([settings.nft, later], check=True, timeout=20)
        rounds += 1
        command = [*inside, sys.executable, "-c", FRAMES]
        subprocess.run(command, input="\n".join([*frames, LAST]), text=True, check=True, timeout=20)
        deadline = Deadline.after(60)
        while True:
            last, others = map(int, re.findall(r"counter packets (\d+)", chain(settings, "passed")))
            if last == rounds:
                before, now = others, others - before
                return now
            assert not deadline.passed, listed(settings)

    return send


@pytest.mark.parametrize("restored", [False, True])
def test_what_else_a_hostile_root_sends_reaches_nobody(
    settings: NodeSettings, passed: t.Callable[[t.Iterable[str]], int], restored: bool
) -> None:
    nft_rules.apply_rules([FIRST], WHOM, settings)
    nft_rules.bind([FIRST._replace(address="10.77.0.100")], settings)
    if restored:
        load_again(settings)
    assert passed(HARMLESS) == len(HARMLESS)
    assert [name for name, one in HOSTILE.items() if passed([one])] == []


@pytest.mark.parametrize("to", [OWN_IP, "0a4d0065", "0a090101", "0a4d0001", "0a4d000c"])
def test_nobody_is_answered_as_by_a_server_of_addresses_wherever_a_guest_may_send(
    settings: NodeSettings, passed: t.Callable[[t.Iterable[str]], int], to: str
) -> None:
    """A bridge goes by the MAC address: the address within says nothing of who reads it."""
    nft_rules.apply_rules([FIRST], WHOM, settings)
    addresses = ["10.77.0.100", "10.77.0.101"]
    nft_rules.admit([FIRST._replace(address=addresses[0])], addresses, ["10.77.0.12"], settings)
    report = "0108" + "0000" + "02010600" + "00" * 12 + "0a4d0002" + "00" * 8 + OTHER + "00" * 230
    assert passed([packet(17, "00430045" + report, to)]) == 1
    for ports in ("00430044", "9c400044"):
        assert passed([packet(17, ports + report, to)]) == 0
    assert passed([packet(17, "00430044" + report, to, fragment="0001")]) == 0
    # a part of something else
    assert passed([packet(17, "9c400044" + report, to, fragment="0001")]) == 1


def hear(settings: NodeSettings, sender: str, frames: t.Iterable[str]) -> None:
    """Frames that come to the bridge from elsewhere: from the network, or from this node itself."""
    inside = [*settings.nft.read_text().splitlines()[1].split()[1:5]]
    program = FRAMES.replace('"guest"', repr(sender))
    subprocess.run([*inside, sys.executable, "-c", program], input="\n".join(frames), text=True, check=True, timeout=20)


@pytest.mark.parametrize(("sender", "restored"), [("outside", False), ("outside", True), ("br0", False)])
def test_before_an_address_is_proven_a_guest_is_whom_it_was_told_to_be(
    settings: NodeSettings, passed: t.Callable[[t.Iterable[str]], int], sender: str, restored: bool
) -> None:
    """An own image of a user's may be hostile from its first instruction on."""
    inside = [*settings.nft.read_text().splitlines()[1].split()[1:5]]
    for message in ("link add port type veth peer name outside", "link set port master br0", "link set port up",
                  "link set outside up"):  # fmt: skip
        subprocess.run([*inside, "/usr/sbin/ip", *message.split()], check=True, timeout=20)
    wait_until_forwarding(inside, "port")
    nft_rules.apply_rules([FIRST, SECOND], WHOM, settings)
    if restored:
        load_again(settings)
    itself, another = neighbour(OWN, OWN_IP), neighbour(OWN, ANOTHERS_IP)
    borrowed = packet(6, segment(0x10, 7000), "0a080101", own=ANOTHERS_IP)
    assert passed([question(OWN)]) == 1
    assert passed([itself, another, borrowed]) == 0
    # of another guest, of no answer, and to another port
    hear(settings, sender, [answer(OTHER, ANOTHERS_IP), answer(OWN, ANOTHERS_IP, op="01"),
                            answer(OWN, ANOTHERS_IP, ports="00430045")])  # fmt: skip
    assert passed([another, borrowed]) == 0
    hear(settings, sender, [answer(OWN, OWN_IP)])
    deadline = Deadline.after(60)  # it comes by another port than what is sent next
    while number("10.77.0.100") not in elements(settings, "vtq1_own"):
        assert not deadline.passed, listed(settings)
    if restored:
        load_again(settings)
    assert passed([itself, packet(6, segment(0x10, 7000), "0a080101")]) == 2
    assert passed([another, borrowed]) == 0
    nft_rules.bind([FIRST._replace(address="10.77.0.100")], settings)
    hear(settings, sender, [answer(OWN, ANOTHERS_IP)])
    assert passed([itself, another, borrowed]) == 1


def test_guests_that_were_made_before_their_addresses_were_learned_go_too(settings: NodeSettings) -> None:
    """By an update of ours while they run."""
    nft_rules.apply_rules([FIRST], WHOM, settings)
    older = (
        'delete element bridge vtorque answered { "vtq1" : goto vtq1_answers }',
        "flush chain bridge vtorque to_guests",
        "flush chain bridge vtorque from_node",
        "delete map bridge vtorque answered",
        "delete chain bridge vtorque vtq1_answers",
    )
    for arguments in older:
        subprocess.run([settings.nft, arguments], check=True, timeout=20)
    nft_rules.bind([FIRST._replace(address="10.77.0.100")], settings)
    assert nft_rules.let_go(["vtq1"], settings) == ("vtq1",)
    assert "vtq" not in listed(settings).replace("vtorque", "")


def test_guest_of_an_earlier_release_is_bound_and_goes(settings: NodeSettings) -> None:
    """Its set has the type of addresses (1.0.0); an update of ours comes while it runs."""
    nft_rules.apply_rules([FIRST], WHOM, settings)
    older = listed(settings).replace("typeof @th,192,32", "type ipv4_addr").replace("@nh,96,32", "ip saddr")
    rules = "\n".join(line for line in older.splitlines() if not re.search(r"@nh,112|\{ @th,192,32 \}", line))
    subprocess.run([settings.nft, "flush ruleset"], check=True, timeout=20)
    subprocess.run([settings.nft, "-f", "-"], input=rules, text=True, check=True, timeout=20)
    assert elements(settings, "vtq1_own") == {"0.0.0.0"}
    nft_rules.bind([FIRST._replace(address="10.77.0.100")], settings)
    assert elements(settings, "vtq1_own") == {"0.0.0.0", "10.77.0.100"}
    assert nft_rules.let_go(["vtq1"], settings) == ("vtq1",)
    assert "vtq" not in listed(settings).replace("vtorque", "")


def test_look_whether_rules_would_be_taken_leaves_none_and_harms_none(settings: NodeSettings) -> None:
    nft_rules.check(settings)
    assert listed(settings) == ""
    nft_rules.apply_rules([FIRST], WHOM, settings)
    before = listed(settings)
    nft_rules.check(settings)
    assert listed(settings) == before


def test_kernel_that_takes_no_rules_of_a_bridge_is_seen(settings: NodeSettings) -> None:
    """Where one of its own is in the way, under the name of ours; to ask what there is would not tell."""
    subprocess.run([settings.nft, "add table bridge vtorque { set guests { type ifname; }; }"], check=True, timeout=20)
    with pytest.raises(NodeFault, match="the packet filter of cn1") as report:
        nft_rules.check(settings)
    assert re.search(r"Error: .*: add (map|rule) bridge vtorque .*guests", report.value.why)
    assert report.value.hint.startswith("nft ")


SITE = """
table inet filter {
    chain input { type filter hook input priority 0; policy accept; tcp dport 22 accept; }
}
table bridge site {
    map guests { type ifname : verdict; elements = { "vtq1" : accept }; }
    set vtq1_job { type ipv4_addr; flags interval; elements = { 10.1.0.0/16 }; }
    chain vtq1 { type filter hook forward priority 0; policy accept; ip saddr @vtq1_job accept; }
}
"""
"""Tables of a site with names as ours; the listing of a bridge's rules holds one of them."""


def test_tables_of_the_site_beside_ours_stay_as_they_are(settings: NodeSettings) -> None:
    subprocess.run([settings.nft, "-f", "-"], input=SITE, text=True, check=True, timeout=20)
    before = listed(settings)
    nft_rules.check(settings)
    nft_rules.apply_rules([FIRST, SECOND], WHOM, settings)
    assert nft_rules.list_confined_devices(settings) == ("vtq1", "vtq2")
    assert nft_rules.admitted("vtq1", settings) == ((), ())
    nft_rules.admit([FIRST._replace(address="10.77.0.100")], ["10.77.0.100"], [], settings)
    assert nft_rules.let_go(["vtq1", "vtq2"], settings) == ("vtq1", "vtq2")
    subprocess.run([settings.nft, "delete table bridge vtorque"], check=True, timeout=20)
    assert listed(settings) == before


def fake_nft(place: pathlib.Path, program: str, version: str) -> NodeSettings:
    """A node whose nft runs this program, but for its version; it has had rules since it booted."""
    nft = place / "nft"
    nft.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{version}"; exit; }}\n{program}\n')
    nft.chmod(0o755)
    (place / "run").mkdir(exist_ok=True)
    (place / "run/network_rules").touch()
    return NodeSettings("cn1", 1, run_dir=place / "run", nft=nft)


@pytest.mark.parametrize("version", ["1.0.6", "1.1.3", "1.1.7"])
def test_rules_are_read_in_the_form_of_each_nft(tmp_path: pathlib.Path, version: str) -> None:
    """They differ in flags, types, counts and order."""
    seen = FIXTURES / f"nft/ruleset-{version}.json"
    node = fake_nft(tmp_path, f'[ "$1" = -j ] && exec cat {seen}; cat >{tmp_path}/removal', f"nftables v{version}")
    assert nft_rules.list_confined_devices(node) == ("vtq1", "vtq2n1")
    assert nft_rules.admitted("vtq1", node) == (("10.77.0.100", "10.77.0.101"), ("10.77.0.12",))
    gone = nft_rules.let_go(["vtq1", "vtq2n1", "vtq9"], node)
    assert gone == ("vtq1 (it was not let go to 10.8.1.1 tcp 27000)", "vtq2n1")
    removal = (tmp_path / "removal").read_text()
    assert 'delete element bridge vtorque private { "vtq2n1" }' in removal
    assert "vtq9" not in removal


@pytest.mark.parametrize("answer", ["", "{", "[]", '{"nftables": 1}', '{"nftables": [{"set": {"elem": [1]}}]}'])
def test_list_of_rules_that_cannot_be_read_is_the_nodes_fault(tmp_path: pathlib.Path, answer: str) -> None:
    node = fake_nft(tmp_path, f"echo '{answer}'", "nftables v9.0.0 (Nobody)")
    with pytest.raises(NodeFault, match="its list of rules cannot be read") as report:
        nft_rules.list_confined_devices(node)
    assert "nft 9.0.0 is installed" in report.value.hint


REFUSES = """echo '/dev/stdin:1:2-3: Error: no such thing
add table bridge vtorque
    ^^' >&2; exit 1"""


@pytest.mark.parametrize(
    ("program", "version", "why", "hint"),
    [
        (
            REFUSES,
            "nftables v1.1.3 (Commodore Bullmoose #4)",
            "Error: no such thing: add table",
            "nft 1.1.3 is installed,",
        ),
        (REFUSES, "nftables v0.9.10", "no such thing", "nft 0.9.10 is older than 1.0.6: install a newer nftables"),
        (REFUSES, "", "no such thing", "install nftables again"),
        ("exit 3", "nftables v1.0.10 (x)", "status 3", "nft 1.0.10 is installed,"),
        ("exec sleep 60", "", "gave no answer within 1 s", "see what else changes rules there"),
    ],
)
def test_packet_filter_that_fails_is_the_nodes_fault_and_names_the_remedy(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, program: str, version: str, why: str, hint: str
) -> None:
    if "sleep" in program:
        monkeypatch.setattr(nft_rules, "PACKET_FILTER_S", 1.0)
    node = fake_nft(tmp_path, program, version)
    for call in (lambda: nft_rules.apply_rules([FIRST], WHOM, node), lambda: nft_rules.check(node)):
        with pytest.raises(NodeFault, match="the packet filter of cn1") as report:
            call()
        assert report.value.cause == "programs"
        assert why in report.value.why
        assert report.value.hint.startswith(hint)
        assert report.value.hint.endswith(", or set confine_guests: false")


def test_missing_nft_is_to_be_installed(tmp_path: pathlib.Path) -> None:
    node = NodeSettings("cn1", 1, run_dir=tmp_path / "run", nft=tmp_path / "none")
    for call in (lambda: nft_rules.apply_rules([FIRST], WHOM, node), lambda: nft_rules.check(node)):
        with pytest.raises(NodeFault, match="No such file") as report:
            call()
        assert (report.value.cause, report.value.hint) == (
            "programs",
            "install nftables, or set confine_guests: false",
        )
