# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m lab.machine.boot FILE PARENT`: become the qemu of the machine, in its own cgroup and network namespace."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import typing as t

from ..system import cgroups, namespaces


def boot(order: dict[str, t.Any], parent: int) -> t.NoReturn:
    """Become qemu.

    Args:
        order: `group`, the name of cgroup and network namespace, `weight` of the group, and `arguments`, the command.
        parent: process id of `up`; without it nothing is begun.
    """
    cgroups.join_for(parent, order["group"])
    # one process that emulates several processors: with the share of one its kernel is starved, and ends in stalls
    cgroups.weigh(order["group"], order["weight"])
    namespaces.join_network(order["group"])
    arguments = order["words"]
    os.execve(arguments[0], arguments, {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    boot(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), int(sys.argv[2]))
