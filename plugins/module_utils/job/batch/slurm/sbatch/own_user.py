# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the name of the user who submits a job is one that vTorque's Prolog reads."""

from __future__ import annotations

import os
import pwd
import re

from .....text import printable
from .....wire.messages import USER_NAME

WHY = (
    "vTorque reads names of users of at most 32 letters, digits and _ . - that begin with a letter or _: no job of"
    " this user can run in a virtual machine"
)


def unreadable_name() -> str:
    """Return the name of the process's user, where it is of another form than Prolog reads; "" where it is not."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # sbatch says itself that it knows no such user
        return ""
    return "" if re.fullmatch(USER_NAME, name) else printable(name[:80])
