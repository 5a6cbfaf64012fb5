# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By which names the hosts of a job know each other."""

from __future__ import annotations

import collections
import typing as t

from ...site_lists.guest_networks import read_addresses
from ...wire.messages import JobHost


def names_by(hosts: t.Sequence[JobHost], domain: str | None) -> t.Callable[[JobHost], list[str]]:
    """What gives the names of each host of a job.

    A guest has the site's domain too.  A bare host is called as the batch server calls it, and by its short name where
    that can mean no other host of the job.

    Args:
        hosts: of the whole job.
        domain: the site's, or none.

    Returns:
        A function from a host to its names, the longest first, as hosts(5) wants the canonical one.
    """
    short = collections.Counter(host.name.partition(".")[0].lower() for host in hosts)

    def names(host: JobHost) -> list[str]:
        if not host.bare:
            return [f"{host.name}.{domain}", host.name] if domain else [host.name]
        label = host.name.partition(".")[0]
        return [host.name, label] if label != host.name and short[label.lower()] == 1 else [host.name]

    return names


def further_names_by(domain: str | None) -> t.Callable[[JobHost], list[tuple[str, list[str]]]]:
    """What gives the addresses of a host on further networks, each with its names: `vcn1-1-fast` on `fast`.

    Args:
        domain: the site's, or none.
    """

    def further(host: JobHost) -> list[tuple[str, list[str]]]:
        found = []
        for network, address in read_addresses(host.networks).items():
            name = f"{host.name}-{network}"
            found.append((address, [f"{name}.{domain}", name] if domain else [name]))
        return found

    return further
