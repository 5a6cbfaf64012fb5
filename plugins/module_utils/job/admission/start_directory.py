# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the directory in which Torque would start a job there in its guest?

Torque starts a job in PBS_O_INITDIR (`qsub -d`) where that is set, else in the home.  `-w` sets PBS_O_WORKDIR and the
job's attribute init_work_dir, and starts it nowhere else (TORQUE 6.1: qsub_functions.c, start_exec.c).
"""

from __future__ import annotations

import os
import re

from ..config.parameters import Policy
from ..request.value_types import format_value

VARIABLE = "PBS_O_INITDIR"


def home_is_shared(policy: Policy) -> bool:
    """Return whether the guest sees what lies in the user's home.  Else it has an empty one."""
    return policy.vm_nfs_home is not None or policy.home_via == "virtiofs"


def covered(policy: Policy, home: str) -> tuple[str, ...]:
    """The directories of the cluster that guests have, each with all that is below it.

    Args:
        policy: the site's configuration.
        home: the user's.
    """
    places = [home] if home_is_shared(policy) else []
    if policy.vm_nfs_ws is not None:
        places.append("/workspace")
    if policy.vm_nfs_opt is not None:
        places.append("/opt-hpc")
    places += [line.split()[1] for line in policy.mounts if len(line.split()) > 1]
    if "/workspace" in places and "/scratch" not in places:
        # a link to it in every guest
        places.insert(places.index("/workspace") + 1, "/scratch")
    return tuple(places)


def is_below(path: str, places: tuple[str, ...]) -> bool:
    """Return whether a path is one of these directories, or in one of them."""
    path = os.path.normpath(path)
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in map(os.path.normpath, places))


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


def objection(directory: str, policy: Policy, home: str) -> str:
    """Why a job cannot start in a directory, or "".

    Args:
        directory: absolute.
        policy: the site's configuration.
        home: the user's, which every guest has, if only as an empty directory.

    Returns:
        Words that name what could be said instead.
    """
    places = covered(policy, home)
    if os.path.normpath(directory) == os.path.normpath(home) or is_below(directory, places):
        return ""
    if not home_is_shared(policy):
        places = (f"your home, {home} (empty)", *places)
    return f"no such directory in the guest; it has {', '.join(places)}"
