# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses from which a host comes to others, and will tomorrow: not those that pass or that move on.

Runs on the host, with whatever Python is there.  Writes one line of JSON: a list.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
import typing as t

PASSING = ("temporary", "deprecated", "dadfailed")
"""An address with one of these flags changes by itself (RFC 8981), or is no source of new connections."""
LIBVIRTS = "192.168.122.1"
"""Of the bridge that every host with libvirt has alike, which tells nobody apart."""

Address = t.Dict[str, t.Any]


def known() -> list[dict[str, t.Any]]:
    """All interfaces with their addresses, by the kernel (ip-address(8))."""
    done = subprocess.run(["ip", "-json", "address", "show"], capture_output=True, text=True, check=True, timeout=30)
    interfaces: list[dict[str, t.Any]] = json.loads(done.stdout or "[]")
    return interfaces


def stays(address: Address) -> bool:
    """Is it the host's own from day to day, as far as the kernel knows?

    The kernel chooses no secondary address by itself: such ones are of services (pacemaker's IPaddr2).
    """
    text = address["local"]
    passing = any(address.get(flag) for flag in PASSING) or address.get("secondary")
    return address["scope"] in ("global", "site") and not passing and text != LIBVIRTS


def floats(address: Address) -> bool:
    """Is it of no network?  Services that move from host to host have such ones (keepalived); so has a DHCP client."""
    whole = ipaddress.ip_address(address["local"]).max_prefixlen
    return int(address["prefixlen"]) == whole and not address.get("dynamic")


def stable(interfaces: t.Iterable[dict[str, t.Any]]) -> list[str]:
    """The addresses of a host that stay its own, in the kernel's order; of no network only if it has no others."""
    addresses = [
        address
        for interface in interfaces
        for address in interface.get("addr_info", ())
        if address.get("local") and stays(address)
    ]
    settled = {address["family"] for address in addresses if not floats(address)}
    chosen = [address["local"] for address in addresses if not floats(address) or address["family"] not in settled]
    return list(dict.fromkeys(chosen))


def main() -> None:
    """Ask, and tell."""
    try:
        found = stable(known())
    except FileNotFoundError:
        found = []  # the package that has `ip` comes with the product
    except (subprocess.SubprocessError, ValueError) as error:
        sys.exit(f"ip address show: {error}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
