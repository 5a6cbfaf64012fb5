# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's id: Slurm's number and its cluster's name, `4711.lab` inside the product, and the number alone for people.

A member of an array has a number of its own, too (SLURM_JOB_ID), and is known by that.
"""

from __future__ import annotations

import re
import typing as t

from ....errors import SiteFault
from ....wire.messages import JOB_ID

NAMED = re.compile(r"([1-9][0-9]{0,9})(?:([_+]|\[(?=[0-9]+\]))([0-9]{1,7})\]?)?(?:\.[A-Za-z0-9.-]{1,254})?")
_NUMBER = r"[1-9][0-9]{0,9}"


def read(number: str, cluster: str) -> str:
    """The id of a job.

    Args:
        number: as Slurm writes it, not trusted.
        cluster: the name of its cluster.

    Raises:
        SiteFault: one of them is of another form.
    """
    job_id = f"{number}.{cluster}"
    if not re.fullmatch(_NUMBER, number) or not re.fullmatch(JOB_ID, job_id):
        raise SiteFault(f"job id {job_id[:80]!r}", "not of the form number.cluster")
    return job_id


def number_of(job_id: str) -> str:
    """The number by which Slurm's commands know a job.

    Args:
        job_id: in the product's form.

    Raises:
        SiteFault: it is of another form.
    """
    number, _dot, _cluster = job_id.partition(".")
    if not re.fullmatch(JOB_ID, job_id) or not re.fullmatch(_NUMBER, number):
        raise SiteFault(f"job id {job_id[:80]!r}", "not of the form number.cluster")
    return number


def read_name(named: str) -> tuple[str, dict[str, str]]:
    """Read a job's name as a user of Slurm writes it.

    Args:
        named: `4711`, `33_1`, `33[1]` or `33+1`, with or without the cluster's name behind a dot.

    Returns:
        By which name Slurm is asked, and what tells the job from others in its answer.

    Raises:
        SiteFault: it is of another form.
    """
    parts = NAMED.fullmatch(named)
    if parts is None:
        raise SiteFault(f"job id {named[:80]!r}", "not of the form 4711, 33_1, 33[1] or 33+1")
    number, kind, member = parts.groups()
    if kind is None:
        return number, {"JobID": number}
    if kind == "+":
        return number, {"HetJobID": number, "HetJobOffset": member}
    return f"{number}_{member}", {"ArrayJobID": number, "ArrayTaskID": member}


def of_environment(environment: t.Mapping[str, str]) -> str:
    """The id of the job that an environment of Slurm's is of.

    Args:
        environment: of a hook or of a job's own process.

    Raises:
        SiteFault: it names none, or one of another form.
    """
    return read(environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_CLUSTER_NAME", ""))
