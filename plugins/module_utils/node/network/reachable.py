# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom the guests of a job may speak to, by the site's word, as addresses and networks."""

from __future__ import annotations

import ipaddress
import socket
import threading
import typing as t

from ...errors import SiteFault
from ...system.clock import Deadline
from ...time_budget import SERVER_NAMES_S
from ..state.settings import NodeSettings

_NO_IPV6 = "confined guests speak IPv4 alone"


class Reach(t.NamedTuple):
    """Whom the guests of a job may speak to, as addresses and networks.

    Attributes:
        node: this node, which they greet.
        files: servers of homes and mounts.
        names, times: servers of names and of the time; (): whoever they are.
        site: whom the site names besides.
    """

    node: str
    files: tuple[str, ...]
    names: tuple[str, ...]
    times: tuple[str, ...]
    site: tuple[str, ...]


def reach(settings: NodeSettings, node: str, servers: t.Sequence[str], deadline: Deadline) -> Reach:
    """Whom guests may speak to, by the site's word.

    Args:
        settings: NodeSettings of this node.
        node: its address on the bridge; "" where nobody is held yet.
        servers: of what this job's guests mount; names or addresses.
        deadline: of the making.

    Raises:
        SiteFault: one of them has no address, or none of IPv4.
    """
    if ":" in node:
        raise SiteFault(
            f"bridge {settings.bridge} has no IPv4 address", _NO_IPV6, "give it one, or set confine_guests: false"
        )
    wanted = {*servers, *settings.may_reach, *settings.ntp_servers, *filter(None, [settings.name_server])}
    known = _addresses(sorted(wanted), Deadline.after(deadline.left_s(SERVER_NAMES_S)))

    def of(destinations: t.Iterable[str]) -> tuple[str, ...]:
        networks = ipaddress.collapse_addresses(
            ipaddress.IPv4Network(one) for word in destinations for one in known[word]
        )
        return tuple(str(network).removesuffix("/32") for network in networks)

    names = of([settings.name_server] if settings.name_server else [])
    return Reach(node, of(servers), names, of(settings.ntp_servers), of(settings.may_reach))


def _addresses(destinations: t.Sequence[str], deadline: Deadline) -> dict[str, tuple[str, ...]]:
    """The IPv4 networks of names, addresses and networks; a name server that is away holds nobody up."""
    found: dict[str, tuple[str, ...]] = {}
    names = []
    for word in destinations:
        try:
            network = ipaddress.ip_network(word.strip("[]"), strict=False)
        except ValueError:
            names.append(word)
            continue
        if network.version != 4:  # in silence it would be a mount, or a name, that nobody can explain
            what = f"guests are to reach {word}, an IPv6 address"
            raise SiteFault(what, _NO_IPV6, "name an IPv4 address, or set confine_guests: false")
        found[word] = (str(network),)

    found |= find_addresses(names, deadline)
    if missing := [name for name in names if name not in found]:
        what = f"the address of {missing[0]}"
        why = "is not known here, and guests are to reach it"
        raise SiteFault(what, why, "see guest_may_reach and mounts in vtorque.yml, /etc/hosts, and name servers")
    return found


def find_addresses(names: t.Sequence[str], deadline: Deadline) -> dict[str, tuple[str, ...]]:
    """Return the IPv4 addresses of names, in order; a name that has none, or none in time, is left out.

    Args:
        names: of hosts.
        deadline: after which nobody is waited for.
    """
    found: dict[str, tuple[str, ...]] = {}

    def ask() -> None:
        for name in names:
            try:
                answers = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
            except OSError:
                continue
            found[name] = tuple(sorted({str(answer[4][0]) for answer in answers}))

    if names:
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(deadline.left_s())
    return dict(found)
