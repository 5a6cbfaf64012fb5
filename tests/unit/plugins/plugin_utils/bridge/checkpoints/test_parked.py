# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a job can be saved is answered before it gets a signal; jobs that rest in a checkpoint are listed."""

from __future__ import annotations

import dataclasses
import pathlib
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import parse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import checkpoint_store
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.checkpoints.parked import (
    find_objection,
    list_parked,
)

POLICY = Policy(checkpoint_dir="/store", home_via="nfs", vm_nfs_home="10.0.0.1:/home")


def make_job(keys: str | None, *, interactive: bool = False) -> BatchJob:
    fields: dict[str, t.Any] = {field.name: "" for field in dataclasses.fields(BatchJob)}
    x = "" if keys is None else parse([(keys, "")]).encode()
    return BatchJob(**{**fields, "job_id": "7.head", "x": x, "interactive": interactive})


@pytest.mark.parametrize("keys", ["checkpoint=on", "checkpoint_every=30m"])
def test_job_that_wants_to_be_saved_can_be(keys: str) -> None:
    assert find_objection(make_job(f"img=tiny,{keys}"), POLICY) == ""


@pytest.mark.parametrize(
    ("keys", "policy", "interactive", "why"),
    [
        (None, {}, False, "runs in no virtual machines"),
        ("img=tiny", {}, False, "was submitted without checkpoint=on"),
        ("img=tiny,checkpoint=off", {"checkpoint_default": "on"}, False, "was submitted without"),
        ("img=tiny", {"home_via": "virtiofs"}, False, "cannot be saved: it mounts a directory of its node by virtiofs"),
        ("img=tiny", {"checkpoint_dir": None}, False, "cannot be saved: this site has no directory for checkpoints"),
        ("img=tiny", {"suspend_guests": "session"}, False, "cannot be saved: this site lets guests of suspended jobs"),
        ("img=tiny", {}, True, "cannot be saved: it has a terminal"),
    ],
)
def test_job_that_is_not_saved_has_its_reason(
    keys: str | None, policy: dict[str, t.Any], interactive: bool, why: str
) -> None:
    found = find_objection(make_job(keys, interactive=interactive), dataclasses.replace(POLICY, **policy))
    assert why in found


def test_site_whose_jobs_are_all_saved_needs_no_key() -> None:
    assert find_objection(make_job("img=tiny"), dataclasses.replace(POLICY, checkpoint_default="on")) == ""


class Batch:
    """A server that has jobs in these states."""

    def __init__(self, **states: str) -> None:
        self.states = states

    def job(self, job_id: str) -> t.Any:
        number = job_id.partition(".")[0]
        if f"job_{number}" not in self.states:
            raise UnknownJob(f"job {job_id}", "is not known")
        return types.SimpleNamespace(state=self.states[f"job_{number}"])


def test_jobs_that_rest_are_listed_and_those_that_run_or_are_gone_are_not(tmp_path: pathlib.Path) -> None:
    for number in range(1, 8):
        place = tmp_path / f"{number}.head/1/vcn1-1"
        place.mkdir(parents=True)
        (place / "memory").write_bytes(bytes(8192))
        if number != 5:
            checkpoint_store.mark_parked(tmp_path, f"{number}.head", 2, "alice", failed=number == 6)
    (tmp_path / "no job").mkdir()
    checkpoint_store.forget_parked(tmp_path, "7.head")
    batch: t.Any = Batch(job_1="H", job_2="R", job_3="C", job_5="H", job_6="H", job_7="Q")
    (row,) = list_parked(tmp_path, batch)
    assert (row["job_id"], row["start"], row["user"], row["node"], row["guests"]) == ("1.head", 2, "alice", "", 1)
    assert row["bytes"] >= 8192
    assert row["since"] > 1.7e9
