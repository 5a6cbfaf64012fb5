# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Heterogeneous jobs: vsbatch takes none, and one that goes past it harms nobody."""

from __future__ import annotations

import pytest

from .conftest import ENOUGH, INTERPRETER, OVER, SlurmSite, comment

pytestmark = pytest.mark.full
SCRIPT = "#!/bin/sh\nhostname\nexit 4\n"


def test_vsbatch_queues_no_heterogeneous_job(site: SlurmSite) -> None:
    before = set(site.jobs())
    by_words = site.on("fe", "vsbatch", "-n1", ":", "-n1", user="alice", stdin=SCRIPT)
    by_lines = site.on("fe", "vsbatch", user="alice", stdin="#!/bin/sh\n#SBATCH hetjob\n#VM vcpus=1\ntrue\n")
    for done in (by_words, by_lines):
        assert (done.returncode, done.stdout) == (2, "")
        assert "a heterogeneous job" in done.stderr
    assert set(site.jobs()) == before


def run(site: SlurmSite, *arguments: str, script: str) -> tuple[str, str]:
    """Run a job of two components; what its script has written, and how the first one ended."""
    number = site.sbatch(*arguments, script=script)
    site.wait_for_state(f"{number}+0", *OVER)
    site.wait_for_state(f"{number}+1", *OVER)
    return site.read(f"/home/alice/slurm-{number}.out"), site.facts(f"{number}+0")["ExitCode"]


def test_component_with_a_request_past_vsbatch_has_guests_of_its_own(site: SlurmSite) -> None:
    """The script runs in that of the first one; what the other one has made goes with it."""
    arguments = [
        *ENOUGH,
        "-w",
        "cn1",
        f"--comment={comment({})}",
        ":",
        *ENOUGH,
        "-w",
        "cn2",
        f"--comment={comment({})}",
    ]
    out, code = run(site, *arguments, script=INTERPRETER + SCRIPT)
    assert (out[:5], code) == ("vcn1-", "4:0"), out


def test_component_without_a_request_beside_one_with_is_bare(site: SlurmSite) -> None:
    """The script is that of the first one."""
    arguments = ["-n1", "-w", "cn1", ":", *ENOUGH, "-w", "cn2", f"--comment={comment({})}"]
    assert run(site, *arguments, script=SCRIPT) == ("cn1\n", "4:0")
