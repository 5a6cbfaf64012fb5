# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Torque's list of a job's variables holds of a directory's name, and in which of them it starts the job.

Torque starts a job in PBS_O_INITDIR (`qsub -d`) where that is set, else in the home.  `-w` sets PBS_O_WORKDIR and the
job's attribute init_work_dir, and starts it nowhere else (TORQUE 6.1: qsub_functions.c, start_exec.c).
"""

from __future__ import annotations

import re

from ....request.value_types import format_value

START = "PBS_O_INITDIR"


def as_listed(directory: str) -> str:
    """Return what is left of a directory's name in the job's list of variables.

    qsub joins the directories of `-d` and `-w` to that list as they are, and the server takes it apart at each comma
    and line end, drops a backslash that protects what follows, and blanks at the end (TORQUE 6.1:
    enc_attropl_hash.c, attr_fn_arst.c, attr_func.c).

    Args:
        directory: as qsub gets it.
    """
    left = re.match(r"(?:[^\\,\n]|\\.|\\$)*", directory, re.DOTALL)
    return re.sub(r"\\(.|$)", r"\1", left[0] if left else "", flags=re.DOTALL).rstrip(" \t\n\v\f\r")


def cut_off(directory: str) -> str:
    """Return why Torque cannot start a job in a directory of this name, or "".

    Args:
        directory: absolute.
    """
    left = as_listed(directory)
    if left == directory:
        return ""
    return (
        f"Torque would start the job in {format_value(left)}, and ends it with status -2 where it cannot: its list of "
        "variables holds no comma, line end, backslash or blank at the end of a name; change to it in the script (cd)"
    )
