# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of OpenPBS's MOM: what it has of jobs on this node, whatever the server says.

`torque_home` of the site's configuration names PBS_HOME (/var/spool/pbs).
"""

from __future__ import annotations

import pathlib
import typing as t

from ....errors import UserFault
from ...request.value_types import format_value
from ..host_match import same_host
from ..shared import mom_traces
from . import owner_file

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchJob


def is_node(policy: Policy) -> bool:
    """Return whether a MOM's directory of jobs is here."""
    return _jobs(policy).is_dir()


def alive_here(policy: Policy) -> t.Callable[[str], bool]:
    """Return whether the MOM has files of a job; see `NodeAdapter.alive_here`."""
    return mom_traces.by_files(_jobs(policy))


def remove_notes(is_over: t.Callable[[str, int], bool]) -> None:
    """Remove as whom jobs ran whose end no hook heard of, as it was disabled; see `NodeAdapter.remove_notes`."""
    owner_file.remove_gone(is_over)


def others_here(policy: Policy, job_id: str) -> tuple[str, ...]:
    """Return the MOM's files of other jobs; see `NodeAdapter.others_here`."""
    return tuple(f"file {name}" for name in mom_traces.others(_jobs(policy), job_id))


def cpusets(policy: Policy, job_id: str) -> tuple[str, ...]:
    """Return (): a cpuset of the MOM's is there before the job's hook."""
    return ()


def runs_users_programs_first(job: BatchJob, policy: Policy) -> bool:
    """Return False: between our hook and the job's shell are hooks alone, which run as root."""
    return False


def start_directory(job: BatchJob) -> str:
    """Return "": a job starts in its user's home."""
    return ""


def node_file(policy: Policy, job_id: str) -> pathlib.Path:
    """Return PBS_NODEFILE as the MOM wrote it: whatever the job's environment says of it."""
    return pathlib.Path(policy.torque_home) / "aux" / job_id


def check_node_file(content: str, hosts: t.Sequence[str]) -> None:
    """Compare a node file with what the batch server says.

    It has a line for each process of MPI (`mpiprocs`), of which a chunk may have fewer or more than processors: the
    hosts and their order are compared.

    Args:
        content: of the file, a host name a line.
        hosts: the server's word, a name a slot, the node that runs the script first.

    Raises:
        UserFault: they disagree.
    """
    found, expected = list(dict.fromkeys(content.split())), list(dict.fromkeys(hosts))
    if len(found) != len(expected) or not all(map(same_host, found, expected)):
        why = f"it says {_listed(found)}, and the batch server says {_listed(expected)}"
        raise UserFault("the job's node file is not the batch server's", why, "tell the administrator")


def _listed(hosts: t.Sequence[str]) -> str:
    text = ", ".join(format_value(host, 64) for host in hosts[:8])
    return (text or "nothing") + (", ..." if len(hosts) > 8 else "")


def _jobs(policy: Policy) -> pathlib.Path:
    return pathlib.Path(policy.torque_home) / "mom_priv" / "jobs"
