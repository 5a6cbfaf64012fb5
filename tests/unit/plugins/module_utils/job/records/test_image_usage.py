# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs need an image."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import image_usage
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.image_usage import CLOCKS_S
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request import request

DAY = 86_400.0
MADE = {"debian12@2": 2 * DAY, "debian12@3": 3 * DAY, "old.img": None, "tiny@1": DAY}


def job(img: str | None, state: str = "R", *, started_s: float = 4 * DAY, vm: bool = True) -> BatchJob:
    asked = request.parse([(f"img={img}" if img else "vcpus=1", "command line")])
    return BatchJob(
        job_id="7.head", name="j", owner_user="alice", owner_host="fe", euser="alice", egroup="alice", state=state,
        queue="batch", slot_hosts=(), start_count=1, x=asked.encode() if vm else "other:part", jobtype="",
        init_work_dir="", session_id=0, substate=42, interactive=False, walltime_s=0, variables={}, submit_args="",
        resource_list={}, account="", started_s=int(started_s),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "one", "needed"),
    [
        ("debian12@3", job("debian12@3"), True),
        ("debian12@3", job("debian12@3", "Q"), True),
        ("debian12@3", job("debian12@3", "C"), False),
        ("debian12@3", job("debian12@2"), False),
        ("debian12@3", job("tiny"), False),
        ("debian12@3", job("debian12", vm=False), False),
        ("debian12@3", job("debian12"), True),
        ("debian12@3", job("debian12", "Q"), False),
        ("debian12@3", job("debian"), False),
        ("debian12@2", job("debian12"), False),
        ("debian12@2", job("debian12", started_s=2.5 * DAY), True),
        ("debian12@2", job("debian12", started_s=3 * DAY + CLOCKS_S - 1), True),
        ("tiny@1", job("tiny", "Q"), True),
        ("tiny@1", job(None), True),
        ("debian12@3", job(None), False),
        ("old.img", job("old"), True),
        ("old.img", job("old.img", "Q"), True),
    ],
)
def test_job_needs_what_it_runs_on_and_what_it_would_not_find(entry: str, one: BatchJob, needed: bool) -> None:
    stay = {name: made for name, made in MADE.items() if name != entry}
    found = image_usage.in_need(entry, [one], default="tiny", revisions=stay)
    assert len(found) == int(needed)
    assert all("7.head of alice" in arguments for arguments in found)


def test_request_that_nobody_can_read_needs_nothing() -> None:
    bad = BatchJob(**{**vars(job("debian12@3")), "x": "vtorque:garbage"})
    assert image_usage.in_need("debian12@3", [bad], default=None, revisions={}) == ()


@pytest.mark.skipif(os.getuid() != 0, reason="records are root's")
def test_last_use_is_the_end_of_the_last_job(tmp_path: pathlib.Path) -> None:
    for number, (image, ended) in enumerate([("a@1", 50.0), ("a@1", 90.0), ("b@1", None)]):
        (tmp_path / f"{number}.head.1").mkdir()
        record = {"guests": [{"image": image}], "phases": {"prologue": {"began": 10.0 + number, "seconds": 1.0}}}
        (tmp_path / f"{number}.head.1/record.json").write_text(json.dumps({**record, "ended": ended}))
    assert image_usage.last_uses(tmp_path) == {"a@1": 90.0, "b@1": 12.0}
    assert image_usage.last_uses(tmp_path / "none") == {}
