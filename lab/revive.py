# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a daemon of this node, or start it again: on that node `python -m lab.revive libvirt|nfs|switch|batch [-p]`."""

from __future__ import annotations

import sys

from . import batch
from .system import cgroups, daemons
from .system.places import PLAN
from .system.state import NodePlan


def main() -> int:
    """The exit status: 2 when the daemon does not start."""
    # else what it starts would count among the processes of whoever called
    cgroups.enter()
    try:
        if sys.argv[1:] == ["libvirt"]:
            daemons.start_libvirt()
        elif sys.argv[1:2] == ["batch"]:
            plan = NodePlan.read(PLAN)
            batch.of(plan.batch).start(plan, *sys.argv[2:])
        elif sys.argv[1:] == ["nfs"]:
            daemons.start_nfs()
        elif sys.argv[1:] == ["switch"]:
            daemons.start_switch()
        else:
            raise daemons.DaemonError("say libvirt, batch, nfs or switch")
    except daemons.DaemonError as error:
        print(f"lab.revive: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
