# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a MOM runs as the user before the job's shell."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import answers, mom_files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/torque"
JOB = answers.parse_job((FIXTURES / "qstat-x-f-complete-2-nodes.xml").read_bytes(), "11.th")


@pytest.mark.parametrize(
    ("resources", "file", "runs"),
    [
        ({}, "", False),
        ({}, "prologue", False),
        ({"prologue": "/home/alice/p.sh"}, "", True),
        ({}, "prologue.user", True),
    ],
)
def test_program_of_a_user_or_for_users_runs_first(
    tmp_path: pathlib.Path, resources: dict[str, str], file: str, runs: bool
) -> None:
    (tmp_path / "mom_priv").mkdir()
    if file:
        (tmp_path / "mom_priv" / file).touch()
    job = dataclasses.replace(JOB, resource_list={**JOB.resource_list, **resources})
    assert mom_files.runs_users_programs_first(job, Policy(torque_home=str(tmp_path))) is runs
