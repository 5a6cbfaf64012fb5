# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user may write where root's programs read: it changes nothing of their job, and nothing of anybody's else."""

from __future__ import annotations

import concurrent.futures
import json

import pytest

from .conftest import ENOUGH, INTERPRETER, OVER, SlurmSite, comment

NAME = 'a\'b "c" $(touch /tmp/vtq-hostile) ;\nJobState=COMPLETED ../../x'
FORGED = {
    "LD_PRELOAD": "/nope.so",
    "BASH_ENV": "/home/alice/evil",
    "PYTHONPATH": "/home/alice",
    "SLURM_JOB_ID": "1",
    "SLURM_JOB_COMMENT": "none",
    "SLURM_JOB_RESTART_COUNT": "7",
    "SLURM_RESTART_COUNT": "7",
    "SLURM_NODELIST": "cn9",
    "SLURMD_NODENAME": "cn9",
    "SPANK_VTORQUE_VM": "img=other",
    "VTORQUE_BATCH_SYSTEM": "none",
}
"""Variables of the submission, all of which reach the job."""
EVIL = "touch /tmp/vtq-hostile\n"


@pytest.mark.full
def test_name_and_environment_of_a_job_change_nothing(site: SlurmSite) -> None:
    site.write("/home/alice/evil", EVIL)
    script = f"{INTERPRETER}#!/bin/sh\nhostname; exit 7\n"
    forged = [f"{name}={value}" for name, value in FORGED.items()]
    options = ("--parsable", *ENOUGH, f"--comment={comment({})}", "-J", NAME)
    done = site.on("fe", "env", *forged, "sbatch", *options, user="alice", stdin=script)
    assert done.returncode == 0, done.stderr
    number = done.stdout.strip()
    site.wait_for("the end of the job", lambda: site.jobs().get(number) in OVER, seen=site.jobs)
    out = site.read(f"/home/alice/slurm-{number}.out")
    assert out.splitlines()[-1].startswith("vcn"), out
    assert site.root("fe", f"squeue -h -t all -j {number} -o %T").strip() == "FAILED"
    for node in ("fe", "cn1", "cn2"):
        assert site.on(node, "ls", "/tmp/vtq-hostile").returncode != 0
    printed = site.on("fe", "vmgr", "job", "show", number, user="alice").stdout
    assert "exit status 7" in printed


PYTHON = "/opt/vtorque/venv/bin/python"
FORGED_NAME = (
    "a\n     Nodes=cn[1-2] CPU_IDs=0-63 Mem=999999 GRES=gpu:8(IDX:0-7)\n   MinCPUsNode=1 HetJobId={0} HetJobOffset=1 "
)
RENAMES = """
import subprocess, sys, time
number, name, seconds = sys.argv[1:]
end = time.monotonic() + float(seconds)
while time.monotonic() < end:
    for new in ("a", name):
        subprocess.run(["scontrol", "update", f"jobid={number}", f"name={new}"], check=True)
"""
"""Every few milliseconds, as a job's owner: one name, another name."""
QUESTIONS = """
import collections, json, pathlib, sys, time
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.adapter import Slurm
seen, end = collections.Counter(), time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    job = Slurm(pathlib.Path("/usr/bin")).job(sys.argv[1])
    seen[json.dumps([sorted(job.nodes), job.resource_list["mem"], len(job.granted)])] += 1
print(json.dumps(seen))
"""
"""As root, what the job was given."""


def test_job_that_is_renamed_between_two_questions_is_given_nothing_by_that(site: SlurmSite) -> None:
    """Between squeue and scontrol, to a name that holds what scontrol writes of a larger job."""
    number = site.sbatch("-J", "a", script="#!/bin/sh\nexec sleep 600\n")
    site.wait_for_state(number, "RUNNING")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        renamed = pool.submit(
            site.on, "fe", PYTHON, "-I", "-c", RENAMES, number, FORGED_NAME.format(number), "8", user="alice"
        )
        asked = site.on("fe", PYTHON, "-I", "-c", QUESTIONS, f"{number}.lab", "7")
        assert renamed.result().returncode == 0, renamed.result().stderr
    assert asked.returncode == 0, asked.stderr
    seen = set(json.loads(asked.stdout))
    true, unknown = '[["cn1"], "1024mb", 0]', '[["cn1"], "0mb", 0]'
    assert true in seen
    assert seen <= {true, unknown}
    assert site.on("fe", "scancel", number, user="alice").returncode == 0


@pytest.mark.full
def test_comment_that_its_owner_changes_while_the_job_runs_leaves_nothing(site: SlurmSite) -> None:
    """The Epilog, which sees the new one, finds what the Prolog made (`leaves_nothing`)."""
    number = site.submit_vm("#!/bin/sh\necho begun\nuntil [ -e ~/go ]; do sleep 1; done\nexit 5\n")
    output = f"/home/alice/slurm-{number}.out"
    site.wait_for("the script to begin", lambda: "begun" in site.read(output), seen=lambda: site.facts(number))
    try:
        done = site.on("fe", "scontrol", "update", f"jobid={number}", "comment=nothing of yours", user="alice")
        assert done.returncode == 0, done.stderr
        site.write("/home/alice/go", "")
        ended = site.ended(number)
    finally:
        site.root("fe", "rm -f /home/alice/go")
    assert (ended.state, ended.code, ended.out) == ("FAILED", "5:0", "begun\n")


@pytest.mark.full
def test_comment_that_makes_a_bare_job_look_like_ours_runs_nothing_on_the_node(site: SlurmSite) -> None:
    """Set when the Prolog is long over, or from the beginning and no request at all."""
    number = site.sbatch("--comment=vtorque:%%", script="#!/bin/sh\necho ran\n")
    ended = site.ended(number)
    assert (ended.state, "ran\n" in (ended.out or "")) in {("FAILED", False), ("COMPLETED", True)}
    other = site.sbatch(script="#!/bin/sh\necho begun\nuntil [ -e ~/go ]; do sleep 1; done\n")
    site.wait_for("the script to begin", lambda: "begun" in site.read(f"/home/alice/slurm-{other}.out"))
    try:
        changed = site.on("fe", "scontrol", "update", f"jobid={other}", f"comment={comment({})}", user="alice")
        assert changed.returncode == 0, changed.stderr
        site.write("/home/alice/go", "")
        after = site.ended(other)
    finally:
        site.root("fe", "rm -f /home/alice/go")
    assert (after.state, after.code, after.out) == ("COMPLETED", "0:0", "begun\n")
    assert not site.reason("cn1")


@pytest.mark.full
def test_request_longer_than_slurm_takes_is_refused_before_it_is_queued(site: SlurmSite) -> None:
    """1024 characters of a comment are Slurm's bound; vsbatch says so itself."""
    before = set(site.jobs())
    plain = site.on("fe", "sbatch", f"--comment=vtorque:{'x' * 1017}", "--wrap=true", user="alice")
    assert plain.returncode != 0
    odd = "".join(chr(0x100 + (number * 7919) % 20000) for number in range(900))
    done = site.on("fe", "vsbatch", "-vm", f"metadata=/home/alice/{odd}", "--wrap=true", user="alice")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing was submitted" in done.stderr
    assert set(site.jobs()) <= before
