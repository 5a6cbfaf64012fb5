# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job that has no record here: the batch server says where it may be, or nobody does."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import answers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import parameters
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record, location
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main

QSTAT = """#!/bin/sh
# plays qstat -x -f JOB, in the form recorded on TORQUE 6.1.3
case "$3" in 11 | 11.th) ;; *) exit 153 ;; esac
printf '%s' '<?xml version="1.0"?><Data><Job><Job_Id>11.th</Job_Id><Job_Owner>alice@th</Job_Owner>'
printf '%s' '<job_state>STATE</job_state><exec_host>HOSTS</exec_host><euser>alice</euser><start_count>1</start_count>'
printf '%s\\n' '<x>REQUEST</x></Job></Data>'
"""

HERE = os.uname().nodename
FIXTURES = pathlib.Path(__file__).resolve().parents[5] / "fixtures"


class Site:
    """A front end with a server that knows one job."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.policy = dataclasses.replace(
            parameters.Policy(), torque_home=str(place), pbs_qsub_on_fe=f"{place}/qsub", record_host=HERE
        )

    def job(self, state: str, hosts: str = "t2/0-1+t1/0-1", request: str = "vtorque:eyJ2IjoxfQ") -> None:
        program = self.place / "qstat"
        program.write_text(QSTAT.replace("STATE", state).replace("HOSTS", hosts).replace("REQUEST", request))
        program.chmod(0o755)


RUNS = "it runs: vmgr job watch 11.th shows how it goes. Its record is on t2"


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("named", ["11", "11.th"])
@pytest.mark.parametrize(
    ("state", "hosts", "request_", "message"),
    [
        ("C", "t2/0-1+t1/0", "vtorque:eyJ2", f"its record has not arrived: it is on t2, which hands it over to {HERE}"),
        ("R", "t2/0", "a;vtorque:eyJ2", f"{RUNS} until it ends; {HERE} gets it then"),
        ("Q", "", "vtorque:eyJ2", "it has not started yet"),
        ("R", "t2/0", "GRES:foo", "it asked for no virtual machines"),
    ],
)
def test_server_says_where_the_record_is(
    site: Site, named: str, state: str, hosts: str, request_: str, message: str
) -> None:
    site.job(state, hosts, request_)
    assert location.find_id(named, site.policy) == "11.th"
    assert location.describe("11.th", site.policy).startswith(message)


def test_site_whose_records_stay_on_nodes(site: Site) -> None:
    report = dataclasses.replace(site.policy, record_host=None)
    site.job("C")
    assert location.describe("11.th", report) == "its record is on t2"
    site.job("R")
    assert location.describe("11.th", report) == RUNS


def test_host_that_gets_no_records_names_both_that_may_have_it(site: Site) -> None:
    report = dataclasses.replace(site.policy, record_host="another-front-end")
    site.job("C")
    assert location.describe("11.th", report) == "its record is on t2, and on another-front-end once that has got it"


def test_what_nobody_knows_is_not_said(site: Site) -> None:
    assert location.describe("11.th", site.policy) == ""  # no qstat
    assert location.find_id("11", site.policy) == ""
    site.job("C")
    for named in ("12", "72[]", "../7", "-x"):
        assert location.find_id(named, site.policy) == ""
    for job_id in ("12.th", "11.other"):
        assert location.describe(job_id, site.policy) == ""


def test_show_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the general word; and the configuration is asked only for a job that has no record here."""
    monkeypatch.setattr(job_record, "RECORDS", site.place / "records")
    config = site.place / "vtorque.yml"
    config.write_text(f"torque_home: {site.place}\npbs_qsub_on_fe: {site.place}/qsub\nrecord_host: {HERE}\n")
    config.chmod(0o644)
    os.chown(config, 0, 0)
    site.job("C")
    with pytest.raises(UserFault, match=r"no record of it in .*has not arrived: it is on t2"):
        main.run_subject(["job", "show", "11"], config)
    with pytest.raises(UserFault, match=r"no record of it in .*records are kept where"):
        main.run_subject(["job", "log", "12"], config)


class Waiting:
    """A batch system whose job was tried, and waits."""

    def __init__(self, state: str, comment: str) -> None:
        form = json.loads((FIXTURES / "slurm/squeue-running.json").read_text())["jobs"]
        known = answers.read_job(next(job for job in form if job["job_id"] == 4), "4.lab").job
        self.known = dataclasses.replace(known, state=state, comment=comment, slot_hosts=(), x="vtorque:eyJ2")

    def job(self, _job_id: str) -> BatchJob:
        return self.known

    def release_command(self, job_id: str) -> str:
        return f"scontrol release {job_id.partition('.')[0]}"


@pytest.mark.parametrize(
    ("state", "comment", "message"),
    [
        (
            "H",
            "vtorque: held: libvirt\x1b is away",
            "it is held: libvirt? is away; scontrol release 4 releases it",
        ),
        ("Q", "vtorque: this job did not run: x (try 1 of 3)", "it waits to be tried again: this job did not run: x"),
        ("H", "ask Bob", "it has not started yet"),
        ("Q", "", "it has not started yet"),
    ],
)
def test_owner_of_a_job_that_waits_reads_why(
    monkeypatch: pytest.MonkeyPatch, state: str, comment: str, message: str
) -> None:
    """squeue says `job requeued in held state` of each."""
    monkeypatch.setattr(location, "open_batch", lambda _policy, **_more: Waiting(state, comment))
    assert location.describe("4.lab", parameters.Policy()).startswith(message)
