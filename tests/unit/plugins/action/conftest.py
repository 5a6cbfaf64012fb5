# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A start that has a run directory, and a plan."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import JobPlan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files

from .task import JOB, START, make_plan


@pytest.fixture
def run_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "run" / "jobs" / f"{JOB}.{START}"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def plan(run_dir: pathlib.Path) -> JobPlan:
    made = make_plan("n1")
    files.write(run_dir / "plan.json", made.to_json())
    return made
