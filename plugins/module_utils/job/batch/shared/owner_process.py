# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process of root's that becomes a job's owner for good, before the program that it runs touches anything of theirs.

setpriv(1) of util-linux sets groups before ids, and ends with an error, having run nothing, when any of it fails.
Between the change of the ids and the call of the program the kernel keeps the process undumpable (credentials(7),
PR_SET_DUMPABLE of prctl(2)), so that the owner cannot trace it while it still is ours.
"""

from __future__ import annotations

import grp
import os
import pwd
import typing as t

SETPRIV = "/usr/bin/setpriv"


def become(uid: int, gid: int, groups: t.Iterable[int]) -> tuple[str, ...]:
    """Return the call that becomes a user for good; the program and its arguments follow it.

    Args:
        uid: of the user.
        gid: of the group as which the job runs, whatever the user's own is.
        groups: their other groups; root's is left out.

    Raises:
        ValueError: that is root, or root's group.
    """
    if uid < 1 or gid < 1:
        raise ValueError(f"a job's owner is never root (user {uid}, group {gid})")
    supplementary = dict.fromkeys((gid, *(group for group in groups if group > 0)))
    return (
        SETPRIV,
        f"--reuid={uid}",
        f"--regid={gid}",
        f"--groups={','.join(map(str, supplementary))}",
        "--inh-caps=-all",
        "--ambient-caps=-all",
        "--bounding-set=-all",
        "--no-new-privs",
        "--pdeathsig=KILL",
    )


def become_owner(user: str, group: str) -> tuple[str, ...] | None:
    """Return the call that becomes the owner of a job, as this host knows them; None: it does not, or it is root.

    Args:
        user: as whom the batch server runs the job.
        group: the job's; "": the user's own.
    """
    try:
        entry = pwd.getpwnam(user)
        gid = grp.getgrnam(group).gr_gid if group else entry.pw_gid
        groups = os.getgrouplist(user, entry.pw_gid)
        return become(entry.pw_uid, gid, groups) if gid in groups else None
    except (KeyError, ValueError):
        return None
