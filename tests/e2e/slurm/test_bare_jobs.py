# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What jobs without a guest notice of Prolog and Epilog: nothing (`make bench PART=slurm` has their processor time)."""

from __future__ import annotations

import re

from .conftest import SlurmSite

OF_SLURM = frozenset({"REQUEST_STATS_INFO", "REQUEST_STATS_RESET"})
"""Of the count itself."""


def requests(site: SlurmSite) -> dict[str, int]:
    """Return how often the controller was asked for each thing since the count began."""
    by_type = site.root("fe", "sdiag").partition("statistics by message type")[2].partition("statistics by user")[0]
    return {name: int(count) for name, count in re.findall(r"([A-Z_]+) +\( *\d+\) count:(\d+)", by_type)}


def questions(site: SlurmSite) -> set[str]:
    """Return what somebody asked or ordered of jobs and nodes, which slurmd itself does not."""
    found = set(requests(site)) - OF_SLURM
    return {name for name in found if re.search("_INFO|_UPDATE|_KILL|_REQUEUE|_SUSPEND", name)}


def test_prolog_and_epilog_of_a_bare_job_ask_the_controller_nothing(site: SlurmSite) -> None:
    site.root("fe", "sdiag -r")
    number = site.sbatch(script="#!/bin/sh\necho ran\n")
    # nobody is asked for the job's state: that would count
    site.wait_for("the end of the Epilog", lambda: "MESSAGE_EPILOG_COMPLETE" in requests(site))
    assert questions(site) == set()
    assert site.read(f"/home/alice/slurm-{number}.out") == "ran\n"
    site.root("fe", f"scontrol show job {number}")
    assert "REQUEST_JOB_INFO_SINGLE" in questions(site)
