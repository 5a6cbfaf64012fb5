# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a job's hosts have guests: the first K of a mixed request (`-vm nodes=K`), none of its spare nodes.

vsub and root check the same two things: of how many hosts the job is, and that there are so many.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..request.request import Request
from .resolve import SITE_DEFAULT, ResolvedRequest

if t.TYPE_CHECKING:
    from ..batch.registry import Terms

KEY = "nodes"
SPARE = "spare"


def vm_hosts(resolved: ResolvedRequest, hosts: int) -> int:
    """How many of a job's hosts, from the job's first node on, have guests.

    A site's default is for jobs of any size: one that has fewer hosts has guests on all of them.

    Args:
        resolved: the request.
        hosts: how many distinct hosts the job has.

    Returns:
        A number that may be greater than `hosts`: then `objection` says so.
    """
    wanted = resolved.figure(KEY)
    if not wanted or (wanted > hosts and resolved.origins[KEY] == SITE_DEFAULT):
        return hosts
    return wanted


def objection(resolved: ResolvedRequest, hosts: int, terms: Terms) -> str:
    """Why a job of so many hosts cannot have so many VM nodes, or ""; in the terms of its batch system."""
    wanted = vm_hosts(resolved, hosts)
    if wanted <= hosts:
        return ""
    have = "1 host" if hosts == 1 else f"{hosts} hosts"
    return f"more VM nodes than the job has hosts ({have}); ask by {terms.ASK_FOR_HOSTS.format(hosts=wanted)}"


def with_spare_count(request: Request, count: int) -> Request:
    """Return the request that says how many spare nodes there are: a site's default may change before the job starts.

    Args:
        request: of the user.
        count: of the nodes that are asked for besides; what the request says itself stays.
    """
    if SPARE in request.values:
        return request
    origins = {**request.origins, SPARE: SITE_DEFAULT}
    return dataclasses.replace(request, values={**request.values, SPARE: count}, origins=origins)


def spare_objection(spare: int, hosts: int, terms: Terms) -> str:
    """Why a job that got so many hosts cannot have so many spare ones, or ""; in the terms of its batch system."""
    if spare < hosts or not spare:
        return ""
    have = "1 host" if hosts == 1 else f"{hosts} hosts"
    return f"no host is left for its guests: the job has {have}; ask by {terms.ASK_FOR_HOSTS.format(hosts=spare + 1)}"
