# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever `squeue --json` and `sinfo --json` write: facts of the right form, or an error of ours.

Seen to fail: with an account that counts as a job's user.
"""

from __future__ import annotations

import copy
import json
import pathlib
import re

import hypothesis.strategies as st
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import answers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import HOST_NAME
from hypothesis import given

from .inputs import TEXTS, as_bytes, damaged, spoiled, tried, without_crash

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures/slurm"
JOBS, NODES = ((FIXTURES / name).read_bytes() for name in ("squeue-running.json", "sinfo-nodes.json"))
OF_USERS = ("account", "admin_comment", "command", "comment", "name", "wckey")
"""What a user writes, or has somebody write."""
BY_OTHERS = ("state", "euser", "owner_user", "slot_hosts", "start_count", "queue", "hold_types", "resource_list")
"""What follows from none of it, but for the marker in the resources of a job of ours."""


@tried
@given(st.one_of(damaged(JOBS), spoiled(json.loads(JOBS)).map(as_bytes)))
def test_any_answer_of_squeue_is_jobs_or_an_error_of_ours(data: bytes) -> None:
    for job in without_crash(lambda: answers.parse_jobs(data)) or ():
        assert all(re.fullmatch(HOST_NAME, host) for host in job.slot_hosts)
        figures = [getattr(job, name) for name in ("start_count", "walltime_s", "started_s")]
        assert all(isinstance(one, int) and not isinstance(one, bool) for one in figures)
        assert isinstance(job.interactive, bool)


@tried
@given(st.lists(st.tuples(st.sampled_from(OF_USERS), TEXTS), min_size=1, max_size=3))
def test_what_a_user_writes_changes_neither_their_job_nor_another(texts: list[tuple[str, str]]) -> None:
    answer = json.loads(JOBS)
    before = answers.parse_jobs(JOBS)
    changed = copy.deepcopy(answer)
    changed["jobs"][0] |= dict(texts)
    after = answers.parse_jobs(as_bytes(changed))
    assert after[1:] == before[1:]
    for name in BY_OTHERS[:-1]:
        assert getattr(after[0], name) == getattr(before[0], name), name
    assert after[0].resource_list["mem"] == before[0].resource_list["mem"]


@tried
@given(st.one_of(damaged(NODES), spoiled(json.loads(NODES)).map(as_bytes)))
def test_any_answer_of_sinfo_is_nodes_or_an_error_of_ours(data: bytes) -> None:
    for node in without_crash(lambda: answers.parse_nodes(data)) or ():
        assert isinstance(node.slots, int)
        assert all(isinstance(state, str) for state in node.states)
