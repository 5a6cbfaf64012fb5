# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user of a job, as the directory of this node knows them."""

from __future__ import annotations

import grp
import os
import pwd
import re
import typing as t

from ...errors import SiteFault, UserFault
from ...wire.messages import ABSOLUTE_PATH, GROUP_NAME, USER_NAME, Group, Owner
from ..request.value_types import format_value


def owner_of(user: str, group: str = "") -> Owner:
    """The user as this node knows them.

    Args:
        user: their name, as the batch server says it.
        group: the group as which the job runs (`-W group_list=`), or "" for their primary one.

    Returns:
        Their ids, groups, home and shell, each of a usable form.

    Raises:
        UserFault: they are root, or not a member of the group.
        SiteFault: this node does not know the user or the group, or its directory tells nonsense.
    """
    if not re.fullmatch(USER_NAME, user):
        raise UserFault(f"user {format_value(user)}", "a name that a guest cannot be given")
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise SiteFault(f"user {user}", "not known on this node", "see to the node's directory service") from None
    gid = entry.pw_gid
    try:
        if group:
            gid = grp.getgrnam(group).gr_gid
        name = grp.getgrgid(gid).gr_name
    except (KeyError, ValueError):
        raise SiteFault(
            f"group {format_value(group or gid)}", "not known on this node", "see to the directory service"
        ) from None
    if entry.pw_uid < 1 or gid < 1:
        raise UserFault(f"user {user}", "jobs of root and of root's group do not run in VMs", "submit as another user")
    member_of = os.getgrouplist(user, entry.pw_gid)
    if gid not in member_of:
        raise UserFault(f"group {format_value(name)}", f"{user} is not a member of it")
    shell = entry.pw_shell or "/bin/sh"
    for what, value, form in (
        ("home", entry.pw_dir, ABSOLUTE_PATH),
        ("shell", shell, ABSOLUTE_PATH),
        ("group", name, GROUP_NAME),
    ):
        if not re.fullmatch(form, value):
            raise SiteFault(f"user {user}", f"{what} {format_value(value)!r} in the directory is of no usable form")
    return Owner(
        user=user,
        uid=entry.pw_uid,
        gid=gid,
        group=name,
        home=entry.pw_dir,
        shell=shell,
        groups=_supplementary(member_of, gid, name),
    )


def _supplementary(member_of: t.Sequence[int], gid: int, group: str) -> tuple[Group, ...]:
    """The user's other groups, each id and each name once; what has no usable name gets one after its id."""
    found: dict[str, Group] = {}
    for number in sorted(set(member_of) - {gid}):
        try:
            name = grp.getgrgid(number).gr_name
        except KeyError:
            name = ""
        if not re.fullmatch(GROUP_NAME, name) or name in found or name == group:
            name = f"g{number}"
        found[name] = Group(name, number)
    return tuple(found.values())
