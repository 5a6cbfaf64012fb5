# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job left on its nodes themselves, beside its guests."""

from __future__ import annotations

import contextlib
import json
import re
import typing as t

import pytest

from .conftest import Site
from .trouble import NODES, WAITS, changed, done_on, finish, wait_in_guest

CGROUP = "/sys/fs/cgroup/pids/torque"
LEAVE = "setsid sleep 86400 >/dev/null 2>&1 </dev/null & echo $!"


def leave(site: Site, node: str) -> str:
    """A process of alice's on a node, in a session of its own; its number."""
    done = site.on(node, "/bin/sh", "-c", LEAVE, user="alice")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def lives(site: Site, node: str, pid: str) -> bool:
    """Is it still there, and no zombie?"""
    return site.on(node, "/bin/sh", "-c", f"grep -q '^State:.[^ZX]' /proc/{pid}/status").returncode == 0


@contextlib.contextmanager
def in_cgroup_of(site: Site, job_id: str, pids: dict[str, str]) -> t.Iterator[None]:
    """A process of each node is in the cgroup of the job, as a MOM that makes some has its tasks there."""
    root = CGROUP if site.on("cn1", "test", "-d", "/sys/fs/cgroup/pids").returncode == 0 else "/sys/fs/cgroup/torque"
    place = f"{root}/{job_id}"
    for node, pid in pids.items():
        site.root(node, f"mkdir -p {place} && echo {pid} >{place}/cgroup.procs")
    with done_on(site, pids, f"for it in {place} {root}; do [ ! -d $it ] || rmdir $it; done"):
        yield


def test_what_the_job_left_is_ended_and_what_else_the_user_has_there_is_not(site: Site) -> None:
    """On every node, found by the job's cgroup; each node had noted that it was the job's alone."""
    job_id = site.submit("-l", "nodes=cn1:ppn=2+cn2:ppn=2", stdin=WAITS)
    wait_in_guest(site, job_id)
    for node in NODES:
        noted = site.wait_for(f"the note of {node}", lambda node=node: site.stored(node, job_id, name="alone.json"))
        assert json.loads(noted)["others"] == []
    left, other = ({node: leave(site, node) for node in NODES} for _ in range(2))
    try:
        with in_cgroup_of(site, job_id, left):
            assert site.on("fe", "qsig", "-s", "URG", job_id, user="alice").returncode == 0
            ended = site.end(job_id)
            assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")
            for node in NODES:
                arguments = f"ended on {node}: {left[node]} (sleep)"
                log = lambda node=node: site.stored(node, job_id, name="vtorque.log")  # noqa: E731
                site.wait_for(
                    f"{node} to have ended it", lambda log=log, arguments=arguments: arguments in log(), seen=log
                )
                assert not lives(site, node, left[node])
                assert lives(site, node, other[node])
                assert f"{other[node]} (sleep)" in log().partition("left on")[2]
    finally:
        for node in NODES:
            site.on(node, "kill", "-9", left[node], other[node])


@pytest.mark.full
def test_nothing_is_ended_where_the_site_does_not_want_it(site: Site) -> None:
    """KILL_USER_PROCESSES_AFTER_JOB=false: not even what the job's cgroup tells; else the job's end is as ever."""
    node = "cn1"
    with changed(site, ("fe", *NODES), kill_user_processes_after_job=False):
        job_id = site.submit("-l", f"nodes={node}:ppn=2", stdin=WAITS)
        wait_in_guest(site, job_id)
        left = {node: leave(site, node)}
        try:
            with in_cgroup_of(site, job_id, left):
                assert finish(site, job_id).exit_status == 0
                site.wait_for("the end of the hook", lambda: '"ended"' in site.stored(node, job_id))
                assert lives(site, node, left[node])
                assert f"ended on {node}" not in site.stored(node, job_id, name="vtorque.log")
                # a cgroup with tasks cannot be removed
                assert site.on(node, "kill", "-9", left[node]).returncode == 0
        finally:
            site.on(node, "kill", "-9", left[node])


@pytest.mark.full
def test_nothing_is_ended_on_a_node_that_another_job_has_too(site: Site) -> None:
    """Bob's bare job came when alice's had begun: what she left stays, and the log of her job says why."""
    node = "cn1"
    with changed(site, ("fe",), pbs_exclusive_node_alloc=False, kill_user_processes_after_job=False):
        job_id = site.submit("-l", f"nodes={node}:ppn=1", stdin=WAITS)
        wait_in_guest(site, job_id)
        beside = site.qsub("-l", f"nodes={node}:ppn=1", stdin="sleep 86400\n", user="bob").stdout.strip()
        left = {node: leave(site, node)}
        try:
            assert site.runs(beside) == node
            with in_cgroup_of(site, job_id, left):
                assert finish(site, job_id).exit_status == 0
                log = lambda: site.stored(node, job_id, name="vtorque.log")  # noqa: E731
                site.wait_for("what its end says", lambda: re.search(f"(left|ended) on {node}", log()), seen=log)
                assert f"left on {node}, which the job does not have for itself (job {beside}" in log()
                assert f"{left[node]} (sleep)" in log()
                assert f"ended on {node}" not in log()
                assert lives(site, node, left[node])
                assert site.facts(beside)["job_state"] == "R"
                assert site.on(node, "kill", "-9", left[node]).returncode == 0
        finally:
            site.on(node, "kill", "-9", left[node])
            site.on("fe", "qdel", beside)
