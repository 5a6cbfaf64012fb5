# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch server's word on a job, kept for one start."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import job_snapshot
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.answers import parse_job
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout

FIXTURES = pathlib.Path(__file__).resolve().parents[5] / "fixtures/torque"
JOB = parse_job((FIXTURES / "qstat-x-f-array-member-running.xml").read_bytes(), "12[1].th")


def test_a_job_comes_back_as_it_was_kept(tmp_path: pathlib.Path) -> None:
    job_snapshot.save_snapshot(JOB, tmp_path)
    assert job_snapshot.read_snapshot(JOB.job_id, tmp_path) == JOB
    assert (tmp_path / layout.JOB).stat().st_mode & 0o777 == 0o400


def test_nothing_kept_is_no_fault(tmp_path: pathlib.Path) -> None:
    assert job_snapshot.read_snapshot(JOB.job_id, tmp_path) is None


def test_another_job_is_not_taken_for_it(tmp_path: pathlib.Path) -> None:
    job_snapshot.save_snapshot(JOB, tmp_path)
    assert job_snapshot.read_snapshot("13[1].th", tmp_path) is None


def test_what_others_could_write_is_not_believed(tmp_path: pathlib.Path) -> None:
    job_snapshot.save_snapshot(JOB, tmp_path)
    (tmp_path / layout.JOB).chmod(0o646)
    with pytest.raises(VTorqueError, match="not believed"):
        job_snapshot.read_snapshot(JOB.job_id, tmp_path)
