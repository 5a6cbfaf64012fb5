# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hooks' program, called by the launcher (`templates/batch/torque/hook.sh.j2`), which chains the site's hooks.

What decides when guests begin to boot is how long `vtorque-node` takes to load: a prologue starts it first, and loads
what it needs itself (`hooks/main.py`) beside it.
"""

from __future__ import annotations

import os
import sys

from ...module_utils.system.process import cgroup
from ...module_utils.system.process.environment import ROOT_ENVIRONMENT
from ..faststart import mark
from ..faststart.spawn import EarlyProgram, begin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NODE = (sys.executable, "-I", "-m", f"{__package__}.vtorque_node")
JOB_ID = 5
"""Which word of the launcher's call is the job's id."""


def main() -> int:
    """The program; returns its exit status (`hook_work.main`)."""
    os.chdir("/")
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the MOM's
    trouble = cgroup.leave_job(sys.argv[JOB_ID]) if len(sys.argv) > JOB_ID else ""
    program = begin_node(sys.argv[1:])
    from ..hooks import main as hook_work  # while that loads beside us

    sys.excepthook = hook_work.report_unexpected
    if trouble:
        hook_work.log_notice(sys.argv[1:], trouble)
    return hook_work.main(sys.argv[1:], program=program)


def begin_node(
    argv: Sequence[str],
    command: Sequence[str] = NODE,
    place: str | os.PathLike[str] = mark.MARK,
    config: str | os.PathLike[str] = mark.CONFIG,
) -> EarlyProgram | None:
    """Start this node's `vtorque-node`, where a prologue will most probably ask it; else None.

    Args:
        argv: what the launcher hands on: role, marker, and more.
        command: its call.
        place: the mark of an earlier job, whose hook knew that it may.
        config: the site's configuration.
    """
    wanted = argv[:2] == ["prologue", "yes"] and mark.allows(place, config)
    return begin((*command, mark.EARLY), ROOT_ENVIRONMENT) if wanted else None


if __name__ == "__main__":
    status = main()
    os._exit(status)  # nothing is buffered, and Python takes its time to take itself apart
