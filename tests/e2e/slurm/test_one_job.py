# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One job of a real Slurm in guests: what its user sees.  Every test also ends with nothing left (conftest.py)."""

from __future__ import annotations

import json
import re

import pytest

from ..conftest import cases
from .conftest import ENOUGH, INTERPRETER, OVER, SlurmSite, comment

DEATHS = ("TERM", "KILL", "SEGV", "USR1")


def test_script_runs_in_a_guest_as_on_the_node(site: SlurmSite) -> None:
    """Another host, the user, arguments, directory, both streams in one file, and the exit status."""
    script = site.write(
        "/home/alice/invm.sh",
        f'{INTERPRETER}#!/bin/bash\nhostname; id -un; pwd; echo "$#:$1:$2"; echo err >&2; exit 37\n',
    )
    done = site.on("fe", "sbatch", "--parsable", *ENOUGH, f"--comment={comment({})}", script, "a b", "c", user="alice")
    assert done.returncode == 0, done.stderr
    ended = site.ended(done.stdout.strip())
    assert ended.out is not None
    name, *rest = ended.out.splitlines()
    assert re.fullmatch(r"vcn[12]-[0-9]+", name)
    assert rest == ["alice", "/home/alice", "2:a b:c", "err"]
    assert (ended.state, ended.code) == ("FAILED", "37:0")


@pytest.mark.full
@pytest.mark.parametrize("status", [0, 1, 126, 127, 130, 137, 255])
def test_exit_status_is_as_on_the_node(site: SlurmSite, status: int) -> None:
    script = f"#!/bin/sh\nexit {status}\n"
    ended, bare = site.vm(script), site.bare(script)
    assert (ended.state, ended.code, ended.out) == (bare.state, bare.code, bare.out)


@pytest.mark.full
@pytest.mark.parametrize("name", DEATHS)
def test_death_by_a_signal_is_as_on_the_node(site: SlurmSite, name: str) -> None:
    script = f"#!/bin/sh\nulimit -c 0\nkill -{name} $$\nsleep 60\n"
    ended, bare = site.vm(script), site.bare(script)
    assert (ended.state, ended.code) == (bare.state, bare.code)


@pytest.mark.parametrize("image", cases(["too small", "gone"], "too small"))
def test_refused_request_is_told_in_the_output_file(site: SlurmSite, image: str) -> None:
    """Nothing runs, and the node is nobody's fault."""
    if image == "gone":
        ended = site.vm("#!/bin/sh\necho ran\n", vm={"img": "gone"})
        expected = "img=gone: no such image"
    else:
        number = site.sbatch(
            "-n1", "--mem=2G", f"--comment={comment({})}", script=f"{INTERPRETER}#!/bin/sh\necho ran\n"
        )
        ended = site.ended(number)
        expected = "the job has 1 of the 2 that its guests need"
    assert (ended.state, ended.code) == ("FAILED", "1:0")
    assert ended.out is not None
    assert expected in ended.out
    assert "ran\n" not in ended.out.splitlines()
    assert ended.out.startswith("vtorque: this job did not run: ")


@pytest.mark.parametrize("code", cases(["", "garbage", "eyJ2IjoxfQ"], "garbage"))
def test_comment_that_cannot_be_unpacked_refuses_its_job(site: SlurmSite, code: str) -> None:
    number = site.sbatch(*ENOUGH, f"--comment=vtorque:{code}", script=f"{INTERPRETER}#!/bin/sh\necho ran\n")
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "1:0")
    assert "the job's VM request cannot be read" in (ended.out or "")
    assert "ran" not in (ended.out or "").splitlines()


@pytest.mark.full
def test_two_nodes_have_a_guest_each_and_ssh_between_them(site: SlurmSite) -> None:
    script = (
        "#!/bin/sh\nhostname; cat $HYDRA_HOST_FILE; echo $SLURM_JOB_NUM_NODES\n"
        "for host in $(sort -u $HYDRA_HOST_FILE); do ssh $host hostname; done; exit 5\n"
    )
    ended = site.vm(script, "-N2", "-n4", "--mem=2G")
    assert ended.out is not None
    first, one, other, count, *reached = ended.out.split()
    assert (first, count) == (one, "2")
    assert one != other
    assert reached == sorted([one, other])
    assert (ended.state, ended.code, ended.nodes) == ("FAILED", "5:0", "cn[1-2]")


@pytest.mark.full
def test_cancel_of_a_job_at_work_runs_its_trap(site: SlurmSite) -> None:
    script = "#!/bin/sh\ntrap 'echo trapped; exit 4' TERM\necho begun\nsleep 600 &\nwait\n"
    number = site.submit_vm(script)
    output = f"/home/alice/slurm-{number}.out"
    site.wait_for("the script to begin", lambda: "begun" in site.read(output), seen=lambda: site.facts(number))
    assert site.on("fe", "scancel", number, user="alice").returncode == 0
    ended = site.ended(number)
    assert ended.state == "CANCELLED"
    site.wait_for("the trap", lambda: "trapped" in site.read(output))


@pytest.mark.full
def test_signal_for_the_batch_script_reaches_it_alone(site: SlurmSite) -> None:
    script = (
        "#!/bin/sh\ntrap 'echo trapped' USR1\n(trap 'echo child' USR1; sleep 3) &\necho begun\nwait; wait\nexit 8\n"
    )
    number = site.submit_vm(script)
    output = f"/home/alice/slurm-{number}.out"
    site.wait_for("the script to begin", lambda: "begun" in site.read(output), seen=lambda: site.facts(number))
    assert site.on("fe", "scancel", "-b", "-s", "USR1", number, user="alice").returncode == 0
    ended = site.ended(number)
    assert (ended.out, ended.code) == ("begun\ntrapped\n", "8:0")


@pytest.mark.full
def test_members_of_an_array_have_guests_of_their_own(site: SlurmSite) -> None:
    first = site.submit_vm(
        "#!/bin/sh\necho $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID; exit 1$SLURM_ARRAY_TASK_ID\n", "--array=1-2"
    )
    outputs = [f"/home/alice/slurm-{first}_{member}.out" for member in (1, 2)]
    site.wait_for("both members to end", lambda: all(state in OVER for state in site.jobs().values()))
    numbers = [site.read(output).split() for output in outputs]
    assert [member for member, _number in numbers] == ["1", "2"]
    assert [site.facts(f"{first}_{member}")["ExitCode"] for member in (1, 2)] == ["11:0", "12:0"]
    assert len({number for _member, number in numbers}) == 2


@pytest.mark.full
def test_cancel_while_guests_boot_leaves_nothing(site: SlurmSite) -> None:
    number = site.submit_vm("#!/bin/sh\necho ran\n")
    site.wait_for_state(number, "RUNNING")
    assert site.on("fe", "scancel", number, user="alice").returncode == 0
    ended = site.ended(number)
    assert ended.state == "CANCELLED"
    assert "ran" not in (ended.out or "")


@pytest.mark.full
def test_fault_of_a_node_drains_it_with_our_note_and_the_job_runs_elsewhere(site: SlurmSite) -> None:
    site.root("cn1", "kill -9 $(cat /run/libvirtd.pid)")
    try:
        ended = site.vm("#!/bin/sh\nhostname; exit 37\n")
        reason = site.reason("cn1")
    finally:
        site.root(
            "cn1", "/usr/bin/env PYTHONPATH=/opt/vtorque-lab /opt/vtorque-lab/venv/bin/python -m lab.revive libvirt"
        )
    assert (ended.state, ended.code, ended.nodes) == ("FAILED", "37:0", "cn2")
    assert (ended.out or "").startswith("vcn2-")
    assert reason.startswith("vtorque: libvirt: ")
    assert reason.endswith(f"(job {ended.number}.lab)")
    site.root("cn1", "/opt/vtorque/bin/vtorque-sweep")
    site.wait_for("our note to be taken back", lambda: site.reason("cn1") == "")
    site.wait_for("cn1 to take jobs", lambda: site.root("fe", "sinfo -h -N -n cn1 -p batch -o %T").strip() == "idle")


@pytest.mark.full
def test_vsbatch_reads_the_scripts_lines_and_asks_for_enough(site: SlurmSite) -> None:
    script = site.write(
        "/home/alice/lines.sh",
        '#!/bin/sh\n#VM ram=224\n#SBATCH -J mine\nhostname; echo "$1:$SLURM_CPUS_ON_NODE"; exit 6\n',
    )
    done = site.on("fe", "vsbatch", "--parsable", "-vm", "vcpus=1", script, "a b", user="alice")
    assert done.returncode == 0, done.stderr
    number = done.stdout.strip()
    assert site.facts(number)["JobName"] == "mine"
    ended = site.ended(number)
    assert re.fullmatch(r"vcn[12]-[0-9]+\na b:1\n", ended.out or "")
    assert (ended.state, ended.code) == ("FAILED", "6:0")


@pytest.mark.full
def test_vsbatch_queues_nothing_of_a_wrong_request(site: SlurmSite) -> None:
    done = site.on("fe", "vsbatch", "-vm", "img=gone,vcpus=many", "--wrap=true", user="alice")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing was submitted" in done.stderr
    assert {"img=gone", "vcpus=many"} <= set(done.stderr.split())
    assert all(state in OVER for state in site.jobs().values())


@pytest.mark.full
def test_job_without_our_comment_runs_on_the_node(site: SlurmSite) -> None:
    ended = site.bare("#!/bin/sh\nhostname; exit 3\n")
    assert (ended.out, ended.code) == ("cn1\n", "3:0")


@pytest.mark.full
def test_interpreter_line_without_a_request_runs_nothing(site: SlurmSite) -> None:
    ended = site.ended(site.sbatch(script=f"{INTERPRETER}#!/bin/sh\necho ran\n"))
    assert (ended.state, ended.code) == ("FAILED", "1:0")
    assert "no virtual machine was made ready" in (ended.out or "")


def test_bare_job_costs_a_shell_in_prolog_and_epilog(site: SlurmSite) -> None:
    """Nothing but that shell runs, and nobody is asked: neither has a PATH to ask by.

    In a namespace of their own processes are numbered from 1: this shell, the hook's, none after it, and what reads
    the last number.  How much processor time it takes is in `make bench` (`slurm_bare_job_cpu_s`).
    """
    call = "SLURM_JOB_ID=7 SLURM_CLUSTER_NAME=lab SLURM_NODELIST=cn1 SLURMD_NODENAME=cn1 /etc/vtorque/slurm"
    look = f"unshare --pid --fork --mount-proc sh -c 'env -i {call}/{{name}} && cat /proc/sys/kernel/ns_last_pid'"
    for name in ("prolog", "epilog"):
        assert site.root("cn1", look.format(name=name)) == "3\n"


@pytest.mark.full
def test_time_in_which_guests_boot_is_given_back_to_a_limit(site: SlurmSite) -> None:
    limited, unlimited = site.vm("#!/bin/sh\n", "-t", "2"), site.vm("#!/bin/sh\n")
    assert (limited.state, unlimited.state) == ("COMPLETED", "COMPLETED")
    assert site.facts(limited.number)["TimeLimit"] == "00:03:00"
    assert site.facts(unlimited.number)["TimeLimit"] in ("UNLIMITED", "365-00:00:00")  # by Slurm's backfill
    record = json.loads(site.stored("cn1", f"{limited.number}.lab"))
    assert record["phases"]["prologue"]["given_back"] == 60
    site.wait_for(
        "its record on the front end",
        lambda: site.on("fe", "vmgr", "job", "show", f"{limited.number}.lab", user="alice").returncode == 0,
    )
