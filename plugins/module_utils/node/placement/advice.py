# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""numad's advice on the NUMA cells that have most to spare at this moment; it is no more than that.

libvirt would follow it blindly (`placement='auto'`), out of the job's cores.
"""

from __future__ import annotations

import pathlib
import subprocess

from ...errors import SiteFault
from ...system.clock import Deadline
from ...time_budget import NUMAD_S
from ..system import cpus
from ..system.tool import run_tool


def query_numad(program: pathlib.Path, vcpus: int, memory_mib: int, deadline: Deadline) -> cpus.Cores:
    """Return the cells that numad advises for so much (numad(8), `-w`).

    Args:
        program: numad.
        vcpus: how many.
        memory_mib: how much.
        deadline: bounds it, besides `NUMAD_S`.

    Raises:
        SiteFault: it is not there, fails, is late, or prints no list of cells.
    """
    # -S 0: it looks at no process but its own
    command = [str(program), "-S", "0", "-w", f"{vcpus}:{memory_mib}"]
    what = " ".join(command)
    try:
        done = run_tool(command, deadline.left_s(NUMAD_S))
    except subprocess.TimeoutExpired as error:
        raise SiteFault(what, f"gave no answer within {error.timeout:.0f} s") from error
    except OSError as error:
        raise SiteFault(what, error.strerror or str(error), "see numad in vtorque.yml") from error
    try:
        cells = cpus.read(done.stdout)
    except ValueError:
        cells = ()
    if done.returncode or not cells:
        raise SiteFault(what, f"ended with status {done.returncode} and printed {done.stdout.strip()[:80]!r}")
    return cells
