# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How ssh is called to reach the guest of rank 0: every option is said, and nothing of the user's has a say."""

from __future__ import annotations

import os
import pathlib
import pwd
import typing as t

from ...state import layout
from ...state.records import ReadyGuest, ReadyRecord
from ...system.process.environment import USER_TOOL_ENVIRONMENT
from ...wire.ssh_options import GUEST_LOGIN, X11, option_arguments

SSH = "/usr/bin/ssh"
SETPRIV = "/usr/bin/setpriv"


def environment(term: str = "", display: str = "") -> dict[str, str]:
    """What ssh itself runs in: nothing of the user's, but for the kind of their terminal and their display."""
    clean = dict(USER_TOOL_ENVIRONMENT)
    if term:
        clean["TERM"] = term
    if display:  # the MOM has put its cookie into the home of passwd, where xauth looks for it
        clean.update(DISPLAY=display, HOME=pwd.getpwuid(os.getuid()).pw_dir)
    return clean


def command(
    record: ReadyRecord, directory: pathlib.Path, argv: t.Sequence[str], *, terminal: bool = False, x11: bool = False
) -> list[str]:
    """The call of ssh that runs the far end's program in rank 0, and that dies with us, however we die.

    Args:
        record: says where the guest is.
        directory: holds `job_key` and `known_hosts`.
        argv: arguments of the far end; safe tokens, because the guest's login shell reads them.
        terminal: ask for a terminal in the guest.
        x11: forward the display.
    """
    return [SETPRIV, "--pdeathsig", "KILL", *ssh(record, directory, argv, terminal=terminal, x11=x11)]


def ssh(
    record: ReadyRecord, directory: pathlib.Path, argv: t.Sequence[str], *, terminal: bool = False, x11: bool = False
) -> list[str]:
    """Return the call of ssh without a report of its end.  For the arguments see `command`."""
    guest: ReadyGuest = record.guests[0]
    own = (f"HostKeyAlias={guest.name}", f"UserKnownHostsFile={directory / layout.KNOWN_HOSTS}")
    call = [SSH, "-F", "none", "-tt" if terminal else "-T", "-i", str(directory / layout.JOB_KEY)]
    call += option_arguments((*(X11 if x11 else ()), *GUEST_LOGIN, *own))
    call += ["-p", str(guest.port), "-l", record.user, "--", guest.address]
    return [*call, " ".join(["exec", record.far_end, *argv])]
