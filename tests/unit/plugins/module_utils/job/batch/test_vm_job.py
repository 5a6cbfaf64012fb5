# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs are VM jobs, and what they ask for."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import vm_job
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.answers import parse_job
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request

FIXTURES = pathlib.Path(__file__).resolve().parents[5] / "fixtures/torque"
JOB = parse_job((FIXTURES / "qstat-x-f-array-member-running.xml").read_bytes(), "12[1].th")
REQUEST = Request({"vcpus": 3})


def test_a_job_that_carries_a_request_is_a_vm_job() -> None:
    job = dataclasses.replace(JOB, x=f"GRES:foo;{REQUEST.encode()}")
    found = vm_job.vm_job_of(job)
    assert found is not None
    assert (found.job, dict(found.request.values)) == (job, {"vcpus": 3})


@pytest.mark.parametrize("x", ["", "GRES:foo"])
def test_a_job_without_a_request_is_no_vm_job(x: str) -> None:
    assert vm_job.vm_job_of(dataclasses.replace(JOB, x=x)) is None


def test_a_request_that_cannot_be_read_is_told_each_time() -> None:
    job = dataclasses.replace(JOB, x=f"{REQUEST.encode()};{REQUEST.encode()}")
    for _again in range(2):
        with pytest.raises(UserFault, match="2 requests"):
            vm_job.vm_job_of(job)


def test_the_request_is_decoded_once_for_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job's is decoded, whatever was asked before."""
    decoded: list[str] = []
    real = Request.decode
    monkeypatch.setattr(vm_job.Request, "decode", lambda x: (decoded.append(x), real(x))[1])
    jobs = [dataclasses.replace(JOB, x=Request({"vcpus": number}).encode()) for number in (5, 6)]
    found = [vm_job.vm_job_of(job) for job in (jobs[0], jobs[0], jobs[1])]
    assert [one.request.values["vcpus"] for one in found if one] == [5, 5, 6]
    assert decoded == [jobs[0].x, jobs[1].x]


@pytest.mark.parametrize(
    ("other", "marked"),
    [("vtorque", True), ("x+vtorque+y", True), ("", False), ("vtorque2", False), ("novtorque", False)],
)
def test_the_marker_is_one_whole_word(other: str, marked: bool) -> None:
    assert vm_job.is_marked(dataclasses.replace(JOB, resource_list={"other": other})) is marked
