# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest may send: as itself alone, and to whom its job or the site lets it speak.

One table of the kernel's packet filter, on the bridge, with a chain for each guest that is entered by its network
device; what does not come from a guest of ours is not looked at, but for answers of servers of addresses to it: until
one is proven, the addresses in these are the guest's.  The rules are there before the device is, and know no
connections: an answer is whatever TCP does not begin with, so that MPI costs no tracking.  Where a guest was not let
go is kept in a set of its own, which whoever takes the rules away puts into words.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import pathlib
import re
import subprocess
import typing as t

from ...errors import NodeFault
from ...time_budget import PACKET_FILTER_S
from ..state.settings import NodeSettings
from ..system.tool import run_tool
from .reachable import Reach

FAMILY, TABLE, BY_DEVICE, ANSWERED = "bridge", "vtorque", "guests", "answered"
"""Ours, and the maps that lead from a guest's device to the chain of what it sends, and of what DHCP answers it."""
OF_NODES = "{ 4789, 15001-15004, 16509, 16514 }"
"""Ports that no guest's business are: of VXLAN, of Torque's server, scheduler and MOMs, of libvirt's daemons."""
PRIVATE = "private"
"""The set of devices whose guests the node itself does not hear."""
_ANSWERED_MAP = f"add map {FAMILY} {TABLE} {ANSWERED} {{ type ifname : verdict; }}"
_HOOK = "type filter hook prerouting priority -300; policy accept;"
_TO_NODE = "type filter hook input priority -300; policy accept;"
_TO_GUESTS = {
    "to_guests": "type filter hook forward priority -300; policy accept;",
    "from_node": "type filter hook output priority -300; policy accept;",  # whose own may be the server of addresses
}
LEASES = 4
"""So many addresses a guest may be given before one is proven: by each server of addresses, or again after a while."""
KEPT = 64
"""So many places where a guest was not let go are known, addresses with their ports; the counter counts on."""
TOLD = 3
"""So many of them are told when it is gone."""
OLDEST, NEWEST = (1, 0, 6), (1, 1, 7)
"""Versions of nft with which the rules were tried, by packets."""
_PLACES = f"{{ type ipv4_addr . inet_proto . inet_service; size {KEPT}; flags dynamic; }}"


class Guest(t.NamedTuple):
    """A guest on the bridge.

    Attributes:
        device: its network device; names its chain, too.
        mac: its own.
        address: its own, IPv4; "" before it is proven, when it is held to what servers of addresses give it.
        private: the bridge is its job's, and has no other guests (`private.py`).
        tagged: the bridge is that of a VLAN, and of guests alone (`vlans.py`).
    """

    device: str
    mac: str
    address: str = ""
    private: bool = False
    tagged: bool = False


def apply_rules(guests: t.Sequence[Guest], whom: Reach, settings: NodeSettings) -> None:
    """Hold guests to these rules from now on, in place of those that they had.

    Args:
        guests: before they boot; their addresses are bound to what servers of addresses answer them, and to the one
            that is proven (`bind`).
        whom: they may reach.
        settings: NodeSettings of this node.

    Raises:
        NodeFault: this node's packet filter does not do it.
    """
    _marker(settings).parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    _marker(settings).touch(mode=0o600)
    _nft(_text(guests, whom), settings)


def _text(guests: t.Sequence[Guest], whom: Reach) -> str:
    lines = [
        f"add table {FAMILY} {TABLE}",
        f"add map {FAMILY} {TABLE} {BY_DEVICE} {{ type ifname : verdict; }}",
        f"add chain {FAMILY} {TABLE} from_guests {{ {_HOOK} }}",
        f"flush chain {FAMILY} {TABLE} from_guests",
        f"add rule {FAMILY} {TABLE} from_guests iifname vmap @{BY_DEVICE}",
        _ANSWERED_MAP,
    ]
    for chain, hook in _TO_GUESTS.items():
        lines += [
            f"add chain {FAMILY} {TABLE} {chain} {{ {hook} }}",
            f"flush chain {FAMILY} {TABLE} {chain}",
            f"add rule {FAMILY} {TABLE} {chain} udp sport 67 udp dport 68 oifname vmap @{ANSWERED}",
        ]
    if unheard := [f'"{guest.device}"' for guest in guests if guest.private or guest.tagged]:
        # such a bridge has no address, but a node takes a packet by its bridge's MAC address for any address of its own
        lines.append(f"add set {FAMILY} {TABLE} {PRIVATE} {{ type ifname; }}")
        carriers = ('iifname "vtx*" drop', 'iifname "vtv*" drop')
        lines += _chain("to_node", (*carriers, f"iifname @{PRIVATE} drop"), _TO_NODE)
        lines.append(f"add element {FAMILY} {TABLE} {PRIVATE} {{ {', '.join(unheard)} }}")
    for guest in guests:
        lines += [
            *(f"add set {FAMILY} {TABLE} {name} {{ type ipv4_addr; }}" for name in _sets(guest.device)),
            f"add set {FAMILY} {TABLE} {_own(guest.device)} {{ typeof @th,192,32; size {1 + LEASES}; flags dynamic; }}",
            *_addresses_of(guest),
            f"add set {FAMILY} {TABLE} {_dropped(guest.device)} {_PLACES}",
            # a listing of former guests may have been loaded again
            *(f"flush set {FAMILY} {TABLE} {name}" for name in (*_sets(guest.device), _dropped(guest.device))),
            *_chain(_dropped(guest.device), _last_rules(guest.device)),
            *_chain(guest.device, rules(guest, whom)),
            _element("add", BY_DEVICE, guest.device, guest.device),
            _element("add", ANSWERED, guest.device, _answers(guest.device)),
        ]
    return "\n".join(lines)


def _addresses_of(guest: Guest) -> tuple[str, ...]:
    """What a guest may call itself: what it is given, until one of that is proven to be its own.

    An image of its user's may be hostile from its first instruction on.  0.0.0.0 is before a lease, and when it looks
    whether an address is somebody's (RFC 5227).  These are numbers, since the set's type is one (`_match_answers`).
    """
    own, chain = _own(guest.device), _answers(guest.device)
    proven = f", {int(ipaddress.ip_address(guest.address)):#x}" if guest.address else ""
    return (
        *_chain(chain, () if guest.address else _match_answers(guest)),
        f"flush set {FAMILY} {TABLE} {own}",
        f"add element {FAMILY} {TABLE} {own} {{ 0x0{proven} }}",
    )


def _match_answers(guest: Guest) -> tuple[str, ...]:
    """The kernel learns the address from an answer before the guest has it (RFC 2131: op, chaddr, yiaddr).

    Guests answer nobody, wherever they may send else (`rules`), so that whoever does is the site's.
    nft 1.1.3 refuses what 1.0.6 took, a field without a name in a set of `ipv4_addr`: the set is of the field's type.
    """
    mac = guest.mac.replace(":", "")
    return (f"@th,64,8 2 @th,288,48 0x{mac} add @{_own(guest.device)} {{ @th,192,32 }}",)


def _chain(name: str, its_rules: t.Iterable[str], hook: str = "") -> t.Iterator[str]:
    yield f"add chain {FAMILY} {TABLE} {name} {{ {hook} }}" if hook else f"add chain {FAMILY} {TABLE} {name}"
    yield f"flush chain {FAMILY} {TABLE} {name}"
    yield from (f"add rule {FAMILY} {TABLE} {name} {rule}" for rule in its_rules)


def _last_rules(device: str) -> tuple[str, ...]:
    """Return the rules that drop what no other rule lets through; of what is for everybody nothing is counted."""
    place = "ip daddr . meta l4proto . th dport"
    return (
        f"ip daddr != 224.0.0.0/3 meta l4proto {{ tcp, udp }} add @{_dropped(device)} {{ {place} }}",
        "counter drop",
    )


def rules(guest: Guest, whom: Reach) -> tuple[str, ...]:
    """Return the rules of one guest, in their order; the last drops all else.

    Addresses are looked for in `_own` by their offset, before anything else of a rule: behind `ether type arp` or a
    match of IPv4 `nft list` (1.0.6, 1.1.3, 1.1.7) prints `ip saddr` for it, which the set's type forbids when the
    listing is loaded again.
    """
    mac, own = guest.mac, f"@{_own(guest.device)}"
    job, hosts = _sets(guest.device)
    drop = f"goto {_dropped(guest.device)}"
    if guest.private:
        return f"ether saddr != {mac} drop", "accept"
    return (
        f"ether saddr != {mac} drop",
        f"@nh,112,32 {own} ether type arp arp htype 1 arp hlen 6 arp plen 4 arp operation {{ request, reply }} "
        f"arp saddr ether {mac} accept",
        "ether type != ip drop",
        # the address that a server of addresses reads stands in the question (RFC 2131, chaddr)
        f"@nh,96,32 {own} udp sport 68 udp dport 67 @th,288,48 0x{mac.replace(':', '')} accept",
        "ip saddr 0.0.0.0 drop",
        f"@nh,96,32 != {own} drop",
        # whom a frame is for stands in its MAC address: a server of addresses is believed by guests, and by
        # `_match_answers`, whatever the address within; the kernel looks for the ports in later parts of a packet, too
        "ip frag-off & 0x1fff == 0 udp dport 68 drop",
        "udp sport 67 udp dport 68 drop",
        f"ip daddr @{job} accept",
        f"meta l4proto {{ tcp, udp }} th dport {OF_NODES} {drop}",
        # the kernel (6.18) looks for ports and flags also in later parts of a packet, and in what fills up the first:
        # in such parts a connection could be begun with anybody.  TCP of today sends none
        "ip protocol tcp ip frag-off & 0x3fff != 0 drop",
        "tcp flags & (syn | ack) != syn accept",
        "icmp type { echo-reply, destination-unreachable, time-exceeded, parameter-problem } accept",
        f"ip daddr {whom.node} icmp type echo-request accept",
        f"ip daddr {whom.node} udp dport 9 accept",
        f"{_to(whom.names)}meta l4proto {{ tcp, udp }} th dport 53 accept",
        f"{_to(whom.times)}udp dport 123 accept",
        f"ip daddr @{hosts} accept",
        *([f"{_to(whom.site)}accept"] if whom.site else []),
        f"tcp dport 22 {drop}",
        *([f"{_to(whom.files)}accept"] if whom.files else []),
        drop,
    )


def _to(addresses: t.Sequence[str]) -> str:
    return f"ip daddr {{ {', '.join(addresses)} }} " if addresses else ""


def bind(guests: t.Sequence[Guest], settings: NodeSettings) -> None:
    """Hold guests to their own addresses.

    Args:
        guests: that are held; with their addresses.
        settings: NodeSettings of this node.

    Raises:
        NodeFault: this node's packet filter does not do it.
    """
    admit(guests, [], [], settings)


def admit(guests: t.Sequence[Guest], job: t.Sequence[str], hosts: t.Sequence[str], settings: NodeSettings) -> None:
    """Hold guests to their own addresses; let them reach the others of their job, and its hosts that stay bare.

    Args:
        guests: that are held; with their addresses.
        job: addresses of guests, theirs too.
        hosts: addresses of bare hosts; not their batch system's ports.
        settings: NodeSettings of this node.

    Raises:
        NodeFault: this node's packet filter does not do it.
    """
    lines: list[str] = []
    for guest in guests:
        lines += _addresses_of(guest)
        for name, addresses in zip(_sets(guest.device), (job, hosts), strict=True):
            if some := [address for address in addresses if ":" not in address]:
                lines.append(f"add element {FAMILY} {TABLE} {name} {{ {', '.join(some)} }}")
    _nft("\n".join(lines), settings)


def admitted(device: str, settings: NodeSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the addresses of guests and of bare hosts of its job that a guest may reach.

    Args:
        device: the guest's.
        settings: NodeSettings of this node.

    Raises:
        NodeFault: this node's packet filter does not tell.
    """
    there = _elements(settings)
    job, hosts = (tuple(sorted(map(str, there.get(name, [])))) for name in _sets(device))
    return job, hosts


def let_go(devices: t.Iterable[str], settings: NodeSettings) -> tuple[str, ...]:
    """Take the rules of these devices away.

    Args:
        devices: of guests that are gone.
        settings: NodeSettings of this node.

    Returns:
        Of which devices there were any, as words: with some of where they were not let go.

    Raises:
        NodeFault: this node's packet filter does not do it.
    """
    there = _elements(settings)
    mine = sorted(set(devices) & set(_confined_devices(there)))
    if mine:
        lines = [line for device in mine for line in _removal(device)]
        lines += [
            f'delete element {FAMILY} {TABLE} {PRIVATE} {{ "{device}" }}'
            for device in mine
            if device in there.get(PRIVATE, ())
        ]
        _nft("\n".join(lines), settings)
    return tuple(f"{device}{_places(there.get(_dropped(device), []))}" for device in mine)


def _places(elements: t.Sequence[t.Any]) -> str:
    """Where a guest was not let go, as words; "" for nowhere."""
    found = sorted({"{} {} {}".format(*one["concat"]) for one in elements})
    more = f" and {len(found) - TOLD} more" if len(found) > TOLD else ""
    return f" (it was not let go to {', '.join(found[:TOLD])}{more})" if found else ""


def _removal(device: str) -> t.Iterator[str]:
    # a guest that was made before an update of ours may lack some, and what is not there cannot be deleted
    yield _ANSWERED_MAP
    yield f"add chain {FAMILY} {TABLE} {_answers(device)}"
    yield _element("add", ANSWERED, device, _answers(device))
    for name, chain in ((BY_DEVICE, device), (ANSWERED, _answers(device))):
        yield _element("delete", name, device, chain)
    yield from (f"delete chain {FAMILY} {TABLE} {name}" for name in (device, _dropped(device), _answers(device)))
    yield from (f"delete set {FAMILY} {TABLE} {name}" for name in (*_sets(device), _own(device), _dropped(device)))


def list_confined_devices(settings: NodeSettings) -> tuple[str, ...]:
    """The devices for which there are rules; () also where this node never had any since it booted.

    Raises:
        NodeFault: this node's packet filter does not tell.
    """
    return _confined_devices(_elements(settings))


def _confined_devices(there: dict[str, list[t.Any]]) -> tuple[str, ...]:
    return tuple(
        sorted(str(name) for name, _verdict in there.get(BY_DEVICE, []) if NodeSettings.slot_of(str(name)) is not None)
    )


def _elements(settings: NodeSettings) -> dict[str, list[t.Any]]:
    """What the map and the sets of our table hold, by their names; {} without the table.

    Not the table is asked for: who flushes the node's rules takes it, too, and that is no fault of the node.
    """
    if not _marker(settings).exists():
        return {}
    answer = _nft("", settings, "-j", "list", "ruleset", FAMILY)
    try:
        found = [one[name] for one in json.loads(answer)["nftables"] for name in ("map", "set") if name in one]
        return {str(one["name"]): one.get("elem", []) for one in found if one["table"] == TABLE}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"its list of rules cannot be read: {type(error).__name__} {error}"
        raise _fault(settings, why, _advise_on_refusal(settings)) from error


def check(settings: NodeSettings) -> None:
    """Check that this node's packet filter accepts a guest's rules; the kernel reads them and drops them.

    Raises:
        NodeFault: it would not.
    """
    nowhere = Reach("192.0.2.1", (), (), (), ())  # RFC 5737: nobody's
    _nft(_text([Guest("vtq-check", "02:00:00:00:00:00")], nowhere), settings, "--check", "-f", "-")


def _sets(device: str) -> tuple[str, str]:
    return f"{device}_job", f"{device}_hosts"


def _own(device: str) -> str:
    """The name of the set of addresses that a guest may call its own."""
    return f"{device}_own"


def _dropped(device: str) -> str:
    """The name of a set, and of the chain that fills it."""
    return f"{device}_dropped"


def _answers(device: str) -> str:
    """The name of the chain that learns from answers of servers of addresses."""
    return f"{device}_answers"


def _element(do: str, name: str, device: str, chain: str) -> str:
    return f'{do} element {FAMILY} {TABLE} {name} {{ "{device}" : goto {chain} }}'


def _marker(settings: NodeSettings) -> pathlib.Path:
    """There since this node has had rules: who never had any need not ask."""
    return settings.run_dir / "network_rules"


def _nft(text: str, settings: NodeSettings, *arguments: str) -> str:
    """One command, or a text of several: all of it or nothing."""
    try:
        done = run_tool([str(settings.nft), *(arguments or ("-f", "-"))], PACKET_FILTER_S, f"{text}\n")
    except subprocess.TimeoutExpired:
        why, hint = f"gave no answer within {PACKET_FILTER_S:.0f} s", "see what else changes rules there (nft monitor)"
    except OSError as error:
        why, hint = error.strerror or str(error), "install nftables"
    else:
        if done.returncode == 0:
            return done.stdout
        # the error, and the line of ours that it is about
        why = ": ".join(map(str.strip, done.stderr.strip().splitlines()[:2])) or f"status {done.returncode}"
        hint = _advise_on_refusal(settings)
    raise _fault(settings, why, hint)


def _fault(settings: NodeSettings, why: str, hint: str) -> NodeFault:
    what = f"the packet filter of {settings.node_name} ({settings.nft})"
    return NodeFault(what, why, f"{hint}, or set confine_guests: false", cause="programs")


def _advise_on_refusal(settings: NodeSettings) -> str:
    """Return what to do about an nft that runs, but refuses what it is given."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        answer = run_tool([str(settings.nft), "--version"], PACKET_FILTER_S).stdout
        if found := re.search(r"\bv((\d+)\.(\d+)\.(\d+))", answer):
            if tuple(map(int, found.groups()[1:])) < OLDEST:
                return f"nft {found[1]} is older than {_dotted(OLDEST)}: install a newer nftables"
            return (
                f"nft {found[1]} is installed, the rules were tried with {_dotted(OLDEST)} to {_dotted(NEWEST)}: see "
                f"`nft list table {FAMILY} {TABLE}`, and whether the kernel has nf_tables"
            )
    return "install nftables again"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
