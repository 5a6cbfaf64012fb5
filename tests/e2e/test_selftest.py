# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr selftest in the lab: a real job, and what it says when the chain is broken somewhere."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from .conftest import Result, Site
from .trouble import NODES

HOOK = "/var/spool/torque/mom_priv/prologue"


def selftest(site: Site, *arguments: str, user: str | None = None) -> Result[str]:
    return site.run(
        "on", "fe", *(("--user", user) if user else ()), "--", "vmgr", "selftest", *arguments, timeout_s=900
    )  # fmt: skip


def states(done: Result[str]) -> dict[str, str]:
    """How each proof of this one job came out."""
    (one,) = json.loads(done.stdout)
    return {finding["proof"]: finding["state"] for finding in one["findings"]}


def nothing_in_home(site: Site) -> None:
    assert "selftest" not in site.root("fe", "ls -A /home/alice")


@contextlib.contextmanager
def no_node_free(site: Site) -> t.Iterator[None]:
    site.root("fe", f"pbsnodes -o {' '.join(NODES)}")
    try:
        yield
    finally:
        site.root("fe", f"pbsnodes -c {' '.join(NODES)}")


@pytest.mark.full
def test_user_proves_the_whole_chain(site: Site) -> None:
    done = selftest(site, user="alice")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["exit", "status", "23"] in lines
    assert ["home", "/home/alice"] in lines
    assert ["leftovers", "nothing"] in lines
    assert ["record", "finished"] in lines
    assert done.stdout.splitlines()[-1] == "All of it is proven."
    (times,) = [line for line in lines if line[:2] == ["job", "id"]]
    assert {"prologue", "ready", "gone", "epilogue"} <= set(times)
    nothing_in_home(site)


def test_root_proves_it_over_two_nodes_as_a_user(site: Site) -> None:
    done = selftest(site, "--user", "alice", "--nodes", "2", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    (one,) = json.loads(done.stdout)
    assert sorted(one["nodes"]) == ["cn1", "cn2"]
    assert {finding["cell"] for finding in one["findings"] if finding["proof"] == "ssh"} == {"1 by ssh"}
    assert set(states(done).values()) == {"ok"}
    assert one["seconds"]["prologue"] > 0
    assert site.facts(one["job_id"])["Job_Owner"].startswith("alice@")
    nothing_in_home(site)


@pytest.mark.full
def test_workload_is_timed_in_each_of_two_runs(site: Site) -> None:
    site.write("/home/alice/app.sh", "sleep 2; uname -n\n")
    arguments = ("--repeat", "2", "--workload", "/home/alice/app.sh", "--figures", "/home/alice/new.json")
    done = selftest(site, *arguments, user="alice")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    figures = json.loads(site.root("fe", "cat /home/alice/new.json"))
    assert len(figures["selftest_workload_s_runs"]) == 2
    assert figures["selftest_workload_s"] >= 2
    assert figures["selftest_ready_s"] > 0
    assert {"least", "median", "most"} <= {line.split()[0] for line in done.stdout.splitlines() if line}
    nothing_in_home(site)


@pytest.mark.full
def test_each_node_is_proven_by_a_job_of_its_own(site: Site) -> None:
    """A node without our hook runs the job in no virtual machine, or rather: does not run it."""
    site.root("cn2", f"mv {HOOK} {HOOK}-away")
    try:
        done = selftest(site, "--user", "alice", "--each-node", "--json")
    finally:
        site.root("cn2", f"mv {HOOK}-away {HOOK}")
    assert done.returncode == 1
    proven = {one["nodes"][0]: one for one in json.loads(done.stdout)}
    assert {node: one["proven"] for node, one in proven.items()} == {"cn1": True, "cn2": False}
    bad = {finding["proof"]: finding["problem"] for finding in proven["cn2"]["findings"] if finding["state"] == "bad"}
    assert "the script ended with 23" in bad["exit status"]
    assert "not whole" in bad["output"]
    assert "vtorque: " in bad["errors"], "what the job's shell said"


@pytest.mark.full
def test_what_vsub_refuses_is_told_in_its_words(site: Site) -> None:
    done = selftest(site, "--image", "no-such-image", "--json", user="alice")
    assert done.returncode == 1
    assert states(done) == {"submitted": "bad"}
    assert "no such image" in done.stdout
    nothing_in_home(site)


@pytest.mark.full
def test_job_that_finds_no_node_is_taken_back(site: Site) -> None:
    with no_node_free(site):
        done = selftest(site, "--timeout", "2", "--json", user="alice")
        assert done.returncode == 4
        (one,) = json.loads(done.stdout)
        assert (one["in_time"], one["proven"]) == (False, False)
        assert "is in state Q" in one["findings"][-1]["problem"]
        assert site.jobs().get(one["job_id"], "C") == "C"
        assert selftest(site, "--user", "alice", "--each-node").returncode == 2
    nothing_in_home(site)


@pytest.mark.full
def test_interrupted_it_leaves_no_job(site: Site) -> None:
    script = """
        set -m
        vmgr selftest & pid=$!
        until qstat -x -f | grep -q '<Job_Name>vtorque-selftest</Job_Name>.*<job_state>Q<'; do sleep 0.2; done
        kill -INT $pid; wait $pid; echo status $?
    """
    with no_node_free(site):
        done = site.on("fe", "bash", "-c", script, user="alice")
        assert done.stdout.splitlines()[-1] == "status 130"
        assert "vmgr: selftest: interrupted: deleted: " in done.stderr
        job_id = done.stderr.split("deleted: ")[1].split()[0]
        assert site.jobs().get(job_id, "C") == "C"
    nothing_in_home(site)
