# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of Torque's MOM: what it has of jobs on this node, whatever the server says (torque.md, "Files")."""

from __future__ import annotations

import collections
import os
import pathlib
import re
import typing as t

from ....errors import UserFault
from ...request.value_types import format_value
from ..host_match import same_host
from ..shared import mom_traces

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchJob


def is_node(policy: Policy) -> bool:
    """Return whether a MOM's directory is here.

    Torque's `make install` makes it on every host (buildutils/pbs_mkdirs.in).
    """
    return (pathlib.Path(policy.torque_home) / "mom_priv").is_dir()


def alive_here(policy: Policy) -> t.Callable[[str], bool]:
    """Return whether the MOM has files of a job; see `NodeAdapter.alive_here`."""
    return by_files(pathlib.Path(policy.torque_home))


def remove_notes(is_over: t.Callable[[str, int], bool]) -> None:
    """Do nothing: our hook notes nothing; see `NodeAdapter.remove_notes`."""


def others_here(policy: Policy, job_id: str) -> tuple[str, ...]:
    """Return the MOM's files of other jobs; see `NodeAdapter.others_here`."""
    return tuple(f"file {name}" for name in others(pathlib.Path(policy.torque_home), job_id))


def cpusets(policy: Policy, job_id: str) -> tuple[str, ...]:
    """Return (): a cpuset of the MOM's is there before the job's hook."""
    return ()


def runs_users_programs_first(job: BatchJob, policy: Policy) -> bool:
    """Return whether the MOM runs anything as the user after our prologue: of the site, or by `-l prologue=`."""
    user_prologue = pathlib.Path(policy.torque_home) / "mom_priv" / "prologue.user"
    return "prologue" in job.resource_list or os.path.lexists(user_prologue)


def start_directory(job: BatchJob) -> str:
    """Return where the job is to start (`qsub -d`); "" where the server does not show it."""
    return job.variables.get("PBS_O_INITDIR", "")


def node_file(policy: Policy, job_id: str) -> pathlib.Path:
    """Return PBS_NODEFILE as the MOM wrote it: whatever the job's environment says of it."""
    return pathlib.Path(policy.torque_home) / "aux" / job_id


def read_directives(mom_priv: pathlib.Path) -> dict[str, str]:
    """Return what the MOM's configuration sets, by names in small letters and without `$`; of several the last.

    As `read_config` of Torque 6.1 reads it (src/resmom/mom_config.c): names in any case, `#` begins a comment.

    Args:
        mom_priv: holds `config`, which need not be there.
    """
    try:
        text = (mom_priv / "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    found = (re.match(r"\$([A-Za-z0-9:_]+)\s*(.*)", line) for line in lines)
    return {one[1].lower(): one[2] for one in found if one}


def by_files(torque_home: pathlib.Path) -> t.Callable[[str], bool]:
    """`has_files` for the sweep of this node (`mom_traces.by_files`).

    Args:
        torque_home: holds `mom_priv/jobs`.

    Returns:
        Takes a job id; raises SiteFault when the directory cannot be read.
    """
    return mom_traces.by_files(torque_home / "mom_priv" / "jobs")


def others(torque_home: pathlib.Path, job_id: str) -> tuple[str, ...]:
    """Names of files of other jobs than this one.

    Args:
        torque_home: holds `mom_priv/jobs`.
        job_id: the job; compared as `by_files` does.

    Raises:
        SiteFault: the directory cannot be read.
    """
    return mom_traces.others(torque_home / "mom_priv" / "jobs", job_id)


def check_node_file(content: str, hosts: t.Sequence[str]) -> None:
    """Compare a node file with what the batch server says: `-v BEOWULF_JOB_MAP` forges it (torque.md).

    Args:
        content: of PBS_NODEFILE, a host name a line, a line a slot.
        hosts: the server's word, a name a slot, the mother superior first.

    Raises:
        UserFault: they disagree: in hosts, in their slots, or in the first host.
    """
    lines = content.split()
    found = [_host_of(line, hosts) for line in lines[: len(hosts)]]
    same = len(lines) == len(hosts) and collections.Counter(found) == collections.Counter(hosts)
    if not same or found[:1] != list(hosts[:1]):
        why = f"it says {_listed(lines)}, and the batch server says {_listed(hosts)}"
        raise UserFault("the job's node file is not the batch server's", why, "submit without -v BEOWULF_JOB_MAP")


def _host_of(line: str, hosts: t.Sequence[str]) -> str | None:
    """The host that a line of a node file names; None: none, or it could be several."""
    if line in hosts:
        return line
    candidates = {host for host in hosts if same_host(line, host)}
    return candidates.pop() if len(candidates) == 1 else None


def _listed(hosts: t.Sequence[str]) -> str:
    counts = collections.Counter(hosts).most_common()
    text = ", ".join(f"{format_value(host, 64)} x {count}" for host, count in counts[:8])
    return (text or "nothing") + (", ..." if len(counts) > 8 else "")
