# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Become a user for good: nothing that follows has root's rights, in a home least of all."""

from __future__ import annotations

import os
import pwd

from ...module_utils.errors import UserFault, VTorqueError
from ...module_utils.system.process.environment import LOGIN_ENVIRONMENT
from ...module_utils.text import printable


def find(name: str) -> pwd.struct_passwd:
    """Who is meant.

    Args:
        name: of a user.

    Raises:
        UserFault: there is none, or it is root.
    """
    try:
        who = pwd.getpwnam(name)
    except KeyError:
        raise UserFault(f"user {printable(name[:40])}", "is not known on this host") from None
    if who.pw_uid == 0:
        raise UserFault(f"user {name}", "is root, as whom no job is submitted", "name an ordinary user")
    return who


def become(who: pwd.struct_passwd) -> None:
    """Give up root's rights, if we have them.

    Args:
        who: the user.

    Raises:
        VTorqueError: the system refuses.
    """
    if os.geteuid() != 0:
        return
    try:
        os.initgroups(who.pw_name, who.pw_gid)
        os.setresgid(who.pw_gid, who.pw_gid, who.pw_gid)
        os.setresuid(who.pw_uid, who.pw_uid, who.pw_uid)
    except OSError as error:
        raise VTorqueError(f"cannot become {who.pw_name}", error.strerror or str(error)) from error


def environment(who: pwd.struct_passwd) -> dict[str, str]:
    """What a user's programs find at a login, as far as nobody's dotfiles say otherwise.

    Args:
        who: the user.
    """
    return {
        **LOGIN_ENVIRONMENT,
        "HOME": who.pw_dir,
        "USER": who.pw_name,
        "LOGNAME": who.pw_name,
        "SHELL": who.pw_shell or "/bin/sh",
    }
