# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job in OSv cannot have: its one guest is one process, without users, a shell, ssh or mounts.

vsub and root ask the same; only vsub sees the script.
"""

from __future__ import annotations

import typing as t

from ...errors import UserFault
from ...guest_kinds import OSV, kind_of
from ..request import osv_script
from ..request.keys import ADDITIONS, DISK, SCRIPTS
from ..request.value_types import KeyFault, format_value
from .resolve import ResolvedRequest

if t.TYPE_CHECKING:
    from ..batch.registry import Terms

_ONE = "OSv is one process in one guest: there is no MPI for several, and no ssh between them"
_NOT_IN_OSV = {
    DISK: "nothing in OSv would mount it",
    ADDITIONS: "nothing in OSv could install, write or run it: what the program needs is in the image",
    **dict.fromkeys(SCRIPTS, "OSv has no shell that could run it"),
}


def is_osv(resolved: ResolvedRequest) -> bool:
    """Return whether the job's guest is one of OSv."""
    return kind_of(resolved.text("distro")) is OSV


def objections(resolved: ResolvedRequest, hosts: int, terms: Terms) -> tuple[KeyFault, ...]:
    """What of the request cannot be had in OSv; () for other guests.

    Args:
        resolved: the request.
        hosts: how many distinct hosts the job has.
        terms: of its batch system.
    """
    if not is_osv(resolved):
        return ()
    faults = []
    if resolved.figure("vms_per_node") > 1:
        faults.append(("vms_per_node", _ONE))
    faults += [(key, why) for key, why in _NOT_IN_OSV.items() if resolved.text(key)]
    found = [KeyFault(key, format_value(resolved.text(key)), why, resolved.origins[key]) for key, why in faults]
    if hosts > 1:
        found.append(KeyFault(terms.HOSTS, str(hosts), f"{_ONE}; ask by {terms.ASK_FOR_HOSTS.format(hosts=1)}"))
    return tuple(found)


def refused_options(
    resolved: ResolvedRequest, terms: Terms, *, interactive: bool, directory: tuple[str, str] | None = None
) -> tuple[KeyFault, ...]:
    """What may be asked of the batch system and a job in OSv cannot have; () for other guests.

    Args:
        resolved: the request.
        terms: of its batch system.
        interactive: whether it is a job with a terminal.
        directory: in which it is to start, and where that stands.
    """
    if not is_osv(resolved):
        return ()
    faults = []
    if interactive:
        faults.append(KeyFault(terms.TERMINAL, "", "OSv has no shell and no terminal: submit a batch job"))
    if resolved.shell:
        faults.append(
            KeyFault(terms.SHELL, format_value(resolved.shell), "OSv has no shell: the script names the one program")
        )
    if directory is not None:
        faults.append(
            KeyFault(terms.DIRECTORY, format_value(directory[0]), "a program in OSv starts in /", directory[1])
        )
    return tuple(faults)


def script_objections(script: bytes, name: str) -> tuple[KeyFault, ...]:
    """Why a script is no job for OSv.

    Args:
        script: as the user submits it.
        name: how messages call it.
    """
    try:
        osv_script.read(script)
    except UserFault as fault:
        return (KeyFault(name, "", fault.why),)
    return ()
