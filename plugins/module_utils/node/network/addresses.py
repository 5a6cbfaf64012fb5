# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a guest is on the network: candidates for the address of a MAC, as they come to light.

The kernel's neighbour table is heard (`rtnetlink.py`), DHCP leases by inotify, and a site's static map is asked
once.  What is found is a candidate: which machine answers there is for the host key to prove (`readiness.py`).
"""

from __future__ import annotations

import ipaddress
import json
import math
import os
import pathlib
import re
import select
import socket
import subprocess
import time
import typing as t

from ...effects import leaves_nothing
from ...errors import NodeFault, SiteFault, VTorqueError
from ...frozen import frozen
from ...slow_libraries import load_library
from ...system.clock import Deadline
from ...time_budget import STATIC_MAP_S
from ...unquoted import QUOTE_MAC, number_for_mac
from ...wire.messages import MAC
from ..system import inotify
from ..system.tool import run_tool
from . import iproute, rtnetlink

SYS_NET = pathlib.Path("/sys/class/net")
_IFF_UP = 1
"""IFF_UP of netdevice(7)."""


@frozen
class Candidate:
    """An address that may be the guest's, and who says so: `neighbour`, `lease` or `static map`."""

    address: str
    source: str


def normal_mac(mac: str) -> str:
    """A MAC address in small letters with colons.

    Raises:
        VTorqueError: it is none, or the number that YAML 1.1 makes of one without quotes.
    """
    if re.fullmatch(MAC, mac):
        return mac
    if number := number_for_mac(mac):
        raise VTorqueError(f"MAC address {mac[:40]}", number, QUOTE_MAC)
    netaddr = load_library("netaddr")
    try:
        text = str(netaddr.EUI(mac, version=48, dialect=netaddr.mac_unix_expanded))
    except (netaddr.AddrFormatError, ValueError, TypeError):
        text = ""
    if not re.fullmatch(MAC, text):
        raise VTorqueError(f"MAC address {mac[:40]!r}", "is none")
    return text


def usable_address(text: object) -> str | None:
    """The address in its normal form; None when no guest can be reached at it from here.

    A link-local address is none: it means nothing without an interface, and it is not what other guests are told.
    """
    try:
        address = ipaddress.ip_address(str(text))
    except ValueError:
        return None
    if address.is_loopback or address.is_link_local or address.is_multicast or int(address) == 0:
        return None
    return None if str(address) == "255.255.255.255" else str(address)


def bridge_index(bridge: str) -> int:
    """The kernel's number of a bridge.

    Raises:
        NodeFault: there is no such interface, or it is no bridge.
    """
    if not (SYS_NET / bridge).exists():
        raise NodeFault(f"bridge {bridge}", "is missing on this node", "see bridge in vtorque.yml", cause="bridge")
    if not (SYS_NET / bridge / "bridge").exists():
        raise NodeFault(
            f"bridge {bridge}", "is an interface of another kind", "see bridge in vtorque.yml", cause="bridge"
        )
    return socket.if_nametoindex(bridge)


def is_up(interface: str) -> bool:
    """Return whether an interface is up, as it was set."""
    return bool(int((SYS_NET / interface / "flags").read_text(encoding="ascii"), 16) & _IFF_UP)


def any_device(names: t.Iterable[str]) -> bool:
    """Return whether one of these interfaces is here."""
    return any((SYS_NET / name).exists() for name in names)


@leaves_nothing
def node_address(bridge: str, deadline: Deadline) -> str:
    """The node's own address on the bridge: where a guest speaks to first; IPv4 before IPv6.

    Args:
        bridge: its name.
        deadline: of whoever asks.

    Raises:
        NodeFault: the bridge is missing or has no address.
        VTorqueError: the kernel does not answer.
    """
    bridge_index(bridge)
    found = filter(None, map(usable_address, iproute.read_addresses(bridge, deadline)))
    addresses = sorted(found, key=lambda address: ":" in address)
    if not addresses:
        raise NodeFault(f"bridge {bridge}", "has no address, so a guest cannot speak to this node", cause="bridge")
    return addresses[0]


def flush(macs: t.Collection[str], bridge: str, deadline: Deadline) -> tuple[str, ...]:
    """Forget where these MAC addresses were: they come again with other guests, and an old entry would be believed.

    Args:
        macs: of the guests.
        bridge: at which they are.
        deadline: of whoever asks.

    Returns:
        The addresses that were forgotten.

    Raises:
        NodeFault: the bridge is missing.
        VTorqueError: the kernel does not answer.
    """
    bridge_index(bridge)
    found = [address for mac, address in iproute.read_neighbours(bridge, deadline) if mac in macs]
    # one may have aged out meanwhile
    return tuple(address for address in found if iproute.forget_neighbour(address, bridge, deadline))


class Neighbours:
    """Candidates for the addresses of guests, by event; a context manager.

    Args:
        macs: whose addresses are looked for.
        bridge: the bridge at which the guests are; None: any interface.
        leases: files of leases, of dnsmasq (`expiry mac address name id`) or of libvirt (JSON).

    Raises:
        NodeFault: the bridge is missing.
    """

    def __init__(
        self, macs: t.Collection[str], *, bridge: str | None = None, leases: t.Sequence[pathlib.Path] = ()
    ) -> None:
        self._macs = {normal_mac(mac) for mac in macs}
        self._leases = tuple(leases)
        self._known: set[tuple[str, Candidate]] = set()
        self._table = rtnetlink.Table(bridge_index(bridge) if bridge else None)
        self._inotify = _watch(leases)
        self._unread = True

    def filenos(self) -> tuple[int, ...]:
        """Descriptors that are readable when there is something to look at."""
        return (self._table.socket.fileno(), *([self._inotify.fileno()] if self._inotify else []))

    def candidates(self) -> tuple[tuple[str, Candidate], ...]:
        """Pairs of MAC address and candidate that were not told before; never waits."""
        found = [
            (mac, Candidate(address, "neighbour"))
            for mac, text in self._table.read()
            if mac in self._macs and (address := usable_address(text))
        ]
        if self._unread or (self._inotify and self._inotify.read(timeout=0)):
            self._unread = False
            leases = [lease for file in self._leases for lease in _valid_leases(file)]
            found += [(mac, Candidate(address, "lease")) for mac, address in _latest_first(leases) if mac in self._macs]
        news = [pair for pair in dict.fromkeys(found) if pair not in self._known]
        self._known.update(news)
        return tuple(news)

    def close(self) -> None:
        """Stop listening."""
        self._table.socket.close()
        if self._inotify:
            self._inotify.close()

    def __enter__(self) -> Neighbours:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _watch(leases: t.Sequence[pathlib.Path]) -> t.Any:
    """Watch the directories of lease files: libvirt's helper replaces the file, which a watch on it would not see."""
    inotify_simple = load_library("inotify_simple")

    directories = {file.parent for file in leases if file.parent.is_dir()}
    if not directories:
        return None
    flags = inotify_simple.flags
    watcher = inotify_simple.INotify(nonblocking=True)
    for directory in directories:
        inotify.watch(watcher, directory, flags.CLOSE_WRITE | flags.MODIFY | flags.MOVED_TO | flags.CREATE)
    return watcher


@frozen
class _Lease:
    """A lease that is valid; `expiry` in seconds since 1970, infinity for one that does not end."""

    mac: str
    address: str
    expiry: float


def read_leases(file: pathlib.Path, now: float | None = None) -> tuple[tuple[str, str], ...]:
    """Pairs of MAC address and address of the leases that are still valid; a missing file has none.

    Of several leases of one MAC address the one that lasts longest comes first: it was granted last, and a server keeps
    those before it until they end.
    """
    return _latest_first(_valid_leases(file, now))


def _latest_first(leases: t.Sequence[_Lease]) -> tuple[tuple[str, str], ...]:
    """The pairs, MAC addresses in the order in which they came, IPv4 before IPv6, the latest lease first."""
    order = {mac: number for number, mac in enumerate(dict.fromkeys(lease.mac for lease in leases))}
    ranked = sorted(leases, key=lambda lease: (order[lease.mac], ":" in lease.address, -lease.expiry))
    return tuple((lease.mac, lease.address) for lease in ranked)


def _valid_leases(file: pathlib.Path, now: float | None = None) -> list[_Lease]:
    now = time.time() if now is None else now
    try:
        text = file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    if text.lstrip().startswith("["):
        rows = _libvirt_leases(text)
    else:
        # names are the guests' own, and no other character of theirs ends a line
        rows = [(fields[0], fields[1], fields[2]) for fields in map(str.split, text.split("\n")) if len(fields) >= 4]
    found = []
    for expiry, mac, address in rows:
        usable = usable_address(address)
        # dnsmasq writes 0 for a lease without end
        end = (float(expiry) or math.inf) if expiry.isdecimal() else -math.inf
        if end > now and usable and re.fullmatch(MAC, mac.lower()):
            found.append(_Lease(mac.lower(), usable, end))
    return found


def _libvirt_leases(text: str) -> list[tuple[str, str, str]]:
    try:
        entries = json.loads(text)
    except ValueError:
        return []
    rows = [entry for entry in entries if isinstance(entry, dict)]
    return [(str(row.get("expiry-time")), str(row.get("mac-address")), str(row.get("ip-address"))) for row in rows]


def run_static_map(script: pathlib.Path, node: str, guests_per_node: int, guest: int, deadline: Deadline) -> str:
    """The address that the site's own map gives a guest (`ip_to_mac_script`).

    Args:
        script: called with the three numbers and names that follow; prints the address.
        guest: number of the guest on the node, 1 first.

    Raises:
        SiteFault: others than root could have written the script; it fails, is late, or prints something else.
    """
    what = f"{script} {node} {guests_per_node} {guest}"
    try:
        for path in (script, script.parent):
            facts = path.stat()
            # with an ACL the group bits are its mask, so that a right granted there shows here too
            if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & 0o022:
                raise SiteFault(str(path), "can be written by others than root: not run", "see ip_to_mac_script")
        done = run_tool([str(script), node, str(guests_per_node), str(guest)], deadline.left_s(STATIC_MAP_S))
    except subprocess.TimeoutExpired as error:
        raise SiteFault(
            what, f"gave no answer within {error.timeout:.0f} s", "see ip_to_mac_script in vtorque.yml"
        ) from error
    except OSError as error:
        raise SiteFault(what, error.strerror or str(error), "see ip_to_mac_script in vtorque.yml") from error
    address = usable_address(done.stdout.strip())
    if done.returncode != 0 or address is None:
        answer = " ".join((done.stderr if done.returncode else done.stdout).split())[:200]
        raise SiteFault(
            what,
            f"status {done.returncode}, said {answer!r}, which is no address",
            "see ip_to_mac_script in vtorque.yml",
        )
    return address


def discover(
    mac: str, *, bridge: str | None = None, timeout_s: float = 60.0, leases: t.Sequence[pathlib.Path] = ()
) -> Candidate:
    """Wait for the first address that comes to light for a MAC address; for any playbook.

    Nothing is proved by it: whoever can speak on that network can claim an address.

    Args:
        mac: the address of the guest's interface.
        bridge: the bridge at which it is; None: any interface.
        timeout_s: seconds to wait.
        leases: files of DHCP leases to look at too.

    Raises:
        NodeFault: the bridge is missing.
        SiteFault: nothing was found in time; says where was looked, and what was seen instead.
    """
    mac = normal_mac(mac)
    deadline = Deadline.after(timeout_s)
    with Neighbours([mac], bridge=bridge, leases=leases) as neighbours:
        poll = select.poll()
        for fileno in neighbours.filenos():
            poll.register(fileno, select.POLLIN)
        while True:
            for _mac, candidate in neighbours.candidates():
                return candidate
            if deadline.passed:
                raise _not_found(mac, bridge, timeout_s, leases)
            poll.poll(deadline.left_s() * 1000)


def _not_found(mac: str, bridge: str | None, timeout_s: float, leases: t.Sequence[pathlib.Path]) -> SiteFault:
    looked = [f"the neighbour table{f' of {bridge}' if bridge else ''}"]
    for file in leases:
        count = len(read_leases(file))
        looked.append(f"{file} ({f'{count} valid leases of others' if os.access(file, os.R_OK) else 'not readable'})")
    others = len(bridge_members(bridge)) if bridge else 0
    seen = f"; {others} interfaces are at {bridge}" if bridge else ""
    return SiteFault(
        f"no address of {mac} came to light within {timeout_s:.0f} s",
        f"looked at {', '.join(looked)}{seen}",
        "a guest is seen when it speaks to this node, or when the DHCP server's leases can be read here",
    )


def bridge_members(bridge: str) -> tuple[str, ...]:
    """The interfaces that are at a bridge."""
    directory = SYS_NET / bridge / "brif"
    return tuple(sorted(path.name for path in directory.iterdir())) if directory.is_dir() else ()
