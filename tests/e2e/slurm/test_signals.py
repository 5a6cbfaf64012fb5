# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways in which Slurm ends a script that traps TERM: in a guest each is as on the node, at the same time."""

from __future__ import annotations

import typing as t

import pytest

from .conftest import SlurmSite

SCRIPT = """#!/bin/bash
trap 'echo trapped; sleep 1; exit 4' TERM
bash -c 'trap "echo child; exit" TERM; touch ~/child.$SLURM_JOB_ID; sleep 600 & wait' &
until [ -e ~/child.$SLURM_JOB_ID ]; do sleep 0.1; done
rm ~/child.$SLURM_JOB_ID
echo begun
while :; do sleep 600 & wait $!; done
"""
"""Its child says whether it was meant, too."""
ACTS: t.Mapping[str, t.Sequence[str]] = {
    "scancel": ("scancel",),
    "scancel -b -s": ("scancel", "-b", "-s", "TERM"),
    "scancel -f -s": ("scancel", "-f", "-s", "TERM"),
}
LIMITS: t.Mapping[str, t.Sequence[str]] = {
    "--signal=B:": ("-t3", "--signal=B:TERM@60"),
    "time limit": ("-t2",),
}


def pair(site: SlurmSite, *options: str) -> list[str]:
    """Return the numbers of two jobs whose scripts wait for TERM, the first in a guest and the second on a node."""
    jobs = [site.submit_vm(SCRIPT, *options), site.sbatch(*options, script=SCRIPT)]
    for number in jobs:
        site.wait_for("the script to begin", lambda number=number: "begun" in output(site, number))
    return jobs


def output(site: SlurmSite, number: str) -> str:
    """Return what a job has written."""
    return site.read(f"/home/alice/slurm-{number}.out")


def seen(site: SlurmSite, number: str) -> tuple[str, str, list[str]]:
    """Return how a job ended, and its lines: without Slurm's, which have the time, and a shell's on its own child."""
    ended = site.ended(number)
    lines = [line for line in (ended.out or "").splitlines() if not line.startswith(("slurmstepd", "Terminated"))]
    return ended.state, ended.code, sorted(lines)


@pytest.mark.full
@pytest.mark.parametrize("act", ACTS)
def test_cancel_reaches_a_script_that_traps_it_as_on_the_node(site: SlurmSite, act: str) -> None:
    jobs = pair(site)
    for number in jobs:
        assert site.on("fe", *ACTS[act], number, user="alice").returncode == 0
    guest, bare = (seen(site, number) for number in jobs)
    assert guest == bare
    assert guest[2] == ["begun", *(["child"] if "-f" in ACTS[act] else []), "trapped"]


@pytest.mark.full
@pytest.mark.parametrize("limit", LIMITS)
def test_limit_of_time_reaches_a_script_that_traps_it_as_on_the_node(site: SlurmSite, limit: str) -> None:
    """Two minutes after the start, which are for the guest's boot, too."""
    guest, bare = (seen(site, number) for number in pair(site, *LIMITS[limit]))
    assert guest == bare
    assert bare[2] == ["begun", "trapped"]
