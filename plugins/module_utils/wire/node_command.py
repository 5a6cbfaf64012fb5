# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where programs of vTorque are, and how root of one node calls one on another."""

from __future__ import annotations

import pathlib
import shlex
import sys

from ..effects import leaves_nothing
from .ssh_options import root_arguments

SETPRIV, SSH = "/usr/bin/setpriv", "/usr/bin/ssh"
END_LEFTOVERS = "--end-left"
"""Argument of `vtorque-node`, before user, job and start: once the guests are gone, end what processes the job left."""


@leaves_nothing
def program_path(name: str, prefix: str | None = None) -> pathlib.Path:
    """Return the path of a program of vTorque.

    Args:
        name: of the program.
        prefix: directory of the installation; None: of the one that runs.
    """
    return pathlib.Path(sys.prefix).parent / "bin" / name if prefix is None else pathlib.Path(prefix, "bin", name)


PROGRAM = program_path("vtorque-node")
"""Where `vtorque-node` is on every node."""


@leaves_nothing
def ssh_command(program: pathlib.Path, host: str, timeout_s: int) -> list[str]:
    """The call of `vtorque-node` on another node; it dies with us, however we die.

    Args:
        program: its path there.
        host: name or address.
        timeout_s: seconds for the connection.
    """
    return [SETPRIV, "--pdeathsig", "KILL", SSH, *root_arguments(host, timeout_s), shlex.quote(str(program))]
