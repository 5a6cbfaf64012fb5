# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Slurm on the lab: bare jobs as its users run them, what is left of them, and the lab's own end."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import typing as t

import pytest

from lab import batch
from lab.cluster import lifecycle, on_nodes
from lab.installation import runtime
from lab.slurm import leftovers as slurm_leftovers
from lab.system import cgroups, network, places
from lab.system.places import OWN_VENV
from lab.system.state import LabError, Process, State
from lab.tests.commands import on, out

PATIENCE_S = 60
REVIVE = ("/usr/bin/env", "PYTHONPATH=/opt/vtorque-lab", str(OWN_VENV / "bin/python"), "-m", "lab.revive", "batch")


def submit(state: State, script: str, *options: str, user: str = "alice") -> str:
    """The number of a new job."""
    return out(state, "fe", "sbatch", "--parsable", *options, user=user, stdin=f"#!/bin/sh\n{script}\n")


def job(state: State, number: str) -> dict[str, str]:
    """What the controller says of a job whose name and comment have no blanks."""
    fields = out(state, "fe", "scontrol", "-o", "show", "job", number).split()
    return dict(word.split("=", 1) for word in fields if "=" in word)


def until(is_so: t.Callable[[], t.Any], what: str) -> None:
    end, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not is_so():
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}"
        pause.wait(0.05)


def state_of(state: State, number: str, *states: str) -> dict[str, str]:
    """Wait until a job is in one of these states; what the controller says of it then."""
    facts: dict[str, str] = {}

    def is_there() -> bool:
        facts.update(job(state, number))
        return facts["JobState"] in states

    until(is_there, f"job {number} {states}")
    return facts


ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


def ended(state: State, number: str) -> dict[str, str]:
    """What the controller says of a job that all its nodes have done with."""
    return state_of(state, number, *ENDED)


def running(state: State, number: str, node: str = "cn1") -> None:
    """Wait until a job's script has begun: not before that has it a cgroup of its own."""
    state_of(state, number, "RUNNING")
    until(lambda: on(state, node, "pgrep", "-f", "^sleep 600").returncode == 0, f"the script of {number}")


def left(state: State) -> str:
    """What `lab left` says, and its exit status."""
    environment = {**os.environ, "VTORQUE_LAB": str(state.directory)}
    done = subprocess.run(
        [sys.executable, "-m", "lab", "left"], cwd=places.CHECKOUT, env=environment, capture_output=True, text=True
    )
    return f"{done.stdout}{done.stderr}exit status {done.returncode}"


def nothing_is_left(state: State) -> None:
    assert left(state) == f"nothing of a job is on {', '.join(state.running().addresses)}\nexit status 0"


def traces(state: State) -> list[str]:
    """Whatever the machine shows of a lab."""
    mounts = [
        line for line in pathlib.Path("/proc/self/mounts").read_text().splitlines() if str(state.directory) in line
    ]
    directory = [str(state.directory)] if state.directory.exists() else []
    return [*network.present(state), *map(str, cgroups.present(state)), *mounts, *directory]


def daemons(state: State) -> dict[int, Process]:
    """The processes of a lab, as the machine numbers them."""
    found = {}
    for pid in cgroups.members(state):
        with contextlib.suppress(ProcessLookupError):
            found[pid] = Process.of(pid)
    return found


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> lifecycle.Plan:
    runtime.install(places.CHECKOUT, places.RUNTIME)
    return lifecycle.Plan(pool=tmp_path_factory.mktemp("pool"), batch=batch.SLURM)


@pytest.fixture(scope="module")
def lab(plan: lifecycle.Plan, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[State]:
    state = State(tmp_path_factory.mktemp("slurm") / "state")
    lifecycle.up(state, plan)
    yield state
    lifecycle.down(state)


@pytest.fixture(autouse=True)
def no_jobs(request: pytest.FixtureRequest) -> t.Iterator[None]:
    """What a test that failed has left would have the node of the next one."""
    yield
    if "lab" in request.fixturenames:
        state = request.getfixturevalue("lab")
        if numbers := out(state, "fe", "squeue", "-h", "-o", "%A").split():
            out(state, "fe", "scancel", *numbers)
            until(lambda: out(state, "fe", "squeue", "-h") == "", "no job is left")


def test_nodes_are_idle_when_up_returns_and_one_has_a_feature_and_a_partition_of_its_own(lab: State) -> None:
    printed = out(lab, "fe", "sinfo", "-h", "-N", "-o", "%N %P %T %f")
    assert sorted(printed.splitlines()) == [
        "cn1 batch* idle vtorque",
        "cn2 batch* idle vtorque,fast",
        "cn2 fast idle vtorque,fast",
    ]
    assert out(lab, "fe", "srun", "-C", "fast", "hostname", user="alice") == "cn2"
    assert out(lab, "cn1", "srun", "-p", "fast", "hostname", user="alice") == "cn2"


def test_batch_job_of_a_user_has_its_output_file_and_exit_status(lab: State) -> None:
    number = submit(lab, 'echo "$(hostname) $(id -un) $1 $SLURM_JOB_ID"; echo wrong >&2; exit 37', "-J", "one")
    facts = ended(lab, number)
    assert (facts["JobState"], facts["ExitCode"], facts["JobName"]) == ("FAILED", "37:0", "one")
    assert out(lab, "fe", "cat", f"/home/alice/slurm-{number}.out") == f"cn1 alice  {number}\nwrong"
    assert out(lab, "fe", "stat", "-c", "%U", f"/home/alice/slurm-{number}.out") == "alice"
    nothing_is_left(lab)


def test_srun_runs_on_two_nodes_at_once(lab: State) -> None:
    printed = out(lab, "fe", "srun", "-N", "2", "-l", "sh", "-c", "hostname; id -un", user="bob")
    assert sorted(printed.splitlines()) == ["0: bob", "0: cn1", "1: bob", "1: cn2"]
    assert on(lab, "fe", "srun", "-N", "2", "sh", "-c", "exit 5", user="bob").returncode == 5
    nothing_is_left(lab)


def test_salloc_gives_a_terminal_on_the_first_node_and_its_status(lab: State) -> None:
    arguments = ["salloc", "-N", "2", "srun", "--interactive", "--preserve-env", "--pty", "sh", "-c"]
    line = on_nodes.command(lab.running(), "fe", [*arguments, "tty; test -t 0; hostname; exit 7"], user="alice")
    line = ["/usr/bin/setsid", "--ctty", "--wait", *line]
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        with os.fdopen(slave, "rb", buffering=0):
            session = subprocess.Popen(line, stdin=slave, stdout=slave, stderr=slave)
        output = b""
        # the terminal's other end is closed by the last who has it: EIO
        with contextlib.suppress(OSError):
            while chunk := screen.read(4096):
                output += chunk
        assert session.wait(timeout=PATIENCE_S) == 7, output
    assert re.search(r"/dev/pts/\d+\r\ncn1\r\n", output.decode())
    until(lambda: out(lab, "fe", "squeue", "-h") == "", "the allocation is given back")
    nothing_is_left(lab)


def test_what_a_running_job_has_on_its_node_is_seen_and_goes_when_it_is_cancelled(lab: State) -> None:
    number = submit(lab, "exec sleep 600", "-w", "cn2")
    running(lab, number, "cn2")
    seen = left(lab)
    for what in ("job's cgroup /sys/fs/cgroup/", "spool file /var/lib/slurm/slurmd/job", "step ", "sleep 600"):
        assert re.search(rf"^cn2 +.*{what}", seen, re.MULTILINE), seen
    assert "cn1" not in seen
    out(lab, "fe", "scancel", number, user="alice")
    facts = ended(lab, number)
    assert (facts["JobState"], facts["ExitCode"]) == ("CANCELLED", "0:15")
    nothing_is_left(lab)


def test_a_user_cannot_cancel_another_s_job(lab: State) -> None:
    number = submit(lab, "exec sleep 600")
    running(lab, number)
    refused = on(lab, "fe", "scancel", number, user="bob")
    assert refused.returncode != 0
    assert "Access/permission denied" in refused.stderr
    assert job(lab, number)["JobState"] == "RUNNING"
    out(lab, "fe", "scancel", number)
    ended(lab, number)


def test_root_of_a_node_drains_it_and_resumes_it(lab: State) -> None:
    out(lab, "cn1", "scontrol", "update", "nodename=cn1", "state=drain", "reason=vtorque: a trial")
    assert out(lab, "fe", "sinfo", "-h", "-p", "batch", "-n", "cn1", "-o", "%T %E") == "drained vtorque: a trial"
    assert out(lab, "fe", "srun", "hostname", user="alice") == "cn2"
    out(lab, "cn1", "scontrol", "update", "nodename=cn1", "state=resume")
    # it does not answer for a moment, until the controller has asked it
    until(
        # 22.05 forgets the reason then, 24.11 keeps it
        lambda: out(lab, "fe", "sinfo", "-h", "-p", "batch", "-n", "cn1", "-o", "%T") == "idle",
        "cn1 is resumed",
    )
    assert out(lab, "fe", "srun", "-w", "cn1", "hostname", user="alice") == "cn1"


def test_job_that_root_of_a_node_requeues_starts_again(lab: State) -> None:
    script = 'echo "start ${SLURM_RESTART_COUNT:-0}"; [ -n "$SLURM_RESTART_COUNT" ] || exec sleep 600'
    number = submit(lab, script, "--open-mode=append", "-w", "cn1")
    running(lab, number)
    out(lab, "cn1", "scontrol", "requeue", number)
    state_of(lab, number, "PENDING")
    # else not before the credential of the first start is of no use any more: two minutes.  In the very second in which
    # the first start ended slurmd takes the new one's credential for that of the old one, and the job fails
    out(lab, "cn1", "scontrol", "update", f"jobid={number}", "StartTime=now+2")
    facts = ended(lab, number)
    assert (facts["JobState"], facts["Restarts"]) == ("COMPLETED", "1")
    arguments = [
        line for line in out(lab, "fe", "cat", f"/home/alice/slurm-{number}.out").splitlines() if "start" in line
    ]
    assert arguments == ["start 0", "start 1"]
    nothing_is_left(lab)


@pytest.mark.parametrize(("asked", "cores"), [("1", 1), ("2", 2)])
def test_job_has_the_cores_that_it_asked_for(lab: State, asked: str, cores: int) -> None:
    assert out(lab, "fe", "srun", "-n", "1", "-c", asked, "nproc", user="alice") == str(cores)


def test_job_has_the_memory_that_it_asked_for(lab: State) -> None:
    hog = "exec python3 -c 'x = bytearray(400 << 20); print(len(x))'"
    bounded, wide = submit(lab, hog, "--mem=100"), submit(lab, hog, "--mem=600")
    assert (ended(lab, bounded)["JobState"], ended(lab, wide)["JobState"]) == ("OUT_OF_MEMORY", "COMPLETED")
    nothing_is_left(lab)


# slurmctld writes down new jobs some seconds later, and when it is told to end
@pytest.mark.parametrize(("node", "file", "sign"), [("fe", "server.pid", "TERM"), ("cn1", "mom.pid", "KILL")])
def test_daemon_that_has_ended_is_started_again_and_jobs_go_on(lab: State, node: str, file: str, sign: str) -> None:
    number = submit(lab, "sleep 600 & trap 'kill %1; exit 3' USR1; wait", "-w", "cn1")
    running(lab, number)
    pid = out(lab, node, "cat", f"/run/lab/{file}")
    out(lab, node, "sh", "-c", f"kill -{sign} {pid}; while kill -0 {pid}; do sleep 0.05; done 2>/dev/null")
    out(lab, node, *REVIVE)
    new = out(lab, node, "cat", f"/run/lab/{file}")
    assert new != pid
    assert out(lab, node, "cat", f"/proc/{new}/cgroup") == out(lab, node, "cat", "/proc/1/cgroup")
    until(lambda: on(lab, "fe", "scancel", "-b", "-s", "USR1", number).returncode == 0, "the job is reached")
    assert ended(lab, number)["ExitCode"] == "3:0"
    nothing_is_left(lab)


def test_two_labs_with_slurm_stand_side_by_side_and_do_not_know_each_other(
    lab: State, other: State, plan: lifecycle.Plan
) -> None:
    lifecycle.up(other, lifecycle.Plan(("fe", "cn1"), plan.pool, batch=batch.SLURM))
    numbers = [submit(state, "exec sleep 600", "-w", "cn1") for state in (lab, other)]
    for state, number in zip((lab, other), numbers, strict=True):
        running(state, number)
        out(state, "fe", "scancel", number)
        ended(state, number)
    credential = out(other, "fe", "munge", "-n")
    assert on(other, "cn1", "unmunge", stdin=credential).returncode == 0
    strange = on(lab, "cn1", "unmunge", stdin=credential)
    assert "Invalid credential" in strange.stderr
    lifecycle.down(other)
    assert traces(other) == []
    assert out(lab, "fe", "srun", "hostname", user="alice") == "cn1"


def test_down_leaves_no_process_mount_or_file_even_of_a_suspended_job(other: State, plan: lifecycle.Plan) -> None:
    lifecycle.up(other, plan)
    number = submit(other, "exec sleep 600")
    running(other, number)
    out(other, "fe", "scontrol", "suspend", number)
    before = daemons(other)
    assert lifecycle.down(other) is True
    assert traces(other) == []
    assert [process for process in before.values() if process.alive] == []


def test_lost_node_comes_back_without_its_job_and_with_what_the_product_has_installed(
    other: State, plan: lifecycle.Plan
) -> None:
    lifecycle.up(other, lifecycle.Plan(("fe", "cn1"), plan.pool, batch=batch.SLURM))
    number = submit(other, "exec sleep 600", "--no-requeue")
    running(other, number)
    lifecycle.lose(other, "cn1")
    lifecycle.bring_back(other, "cn1")
    nothing_is_left(other)
    # the controller has not noticed: so short an absence
    out(other, "fe", "scancel", number)
    assert ended(other, number)["JobState"] == "CANCELLED"
    # in place of the product's, which slurm.conf of the node that booted again names
    hook = '#!/bin/sh\necho "$(id -u) $SLURM_JOB_ID ${SLURM_JOB_COMMENT-}" >>/var/log/$(basename $0)\n'
    for name in ("prolog", "epilog"):
        out(other, "cn1", "sh", "-c", f"cat >/etc/vtorque/slurm/{name}", stdin=hook)
    done = ended(other, submit(other, "true", "--comment=vtorque:x"))
    assert done["JobState"] == "COMPLETED"
    assert [out(other, "cn1", "tail", "-n", "1", f"/var/log/{name}") for name in ("prolog", "epilog")] == [
        f"0 {done['JobId']} vtorque:x"
    ] * 2


def test_up_after_an_up_that_was_killed_when_slurm_ran(other: State, plan: lifecycle.Plan) -> None:
    killed = """
import os, pathlib, signal, sys
from lab.cluster import lifecycle
from lab.system.state import State
lifecycle._await_nodes = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
lifecycle.up(State(pathlib.Path(sys.argv[1])), lifecycle.Plan(pool=pathlib.Path(sys.argv[2]), batch="slurm"))
"""
    arguments = [sys.executable, "-c", killed, str(other.directory), str(plan.pool)]
    assert subprocess.run(arguments, cwd=places.CHECKOUT, check=False).returncode == -signal.SIGKILL
    stale = daemons(other)
    assert len(stale) > 6
    assert lifecycle.up(other, plan) is True
    assert [process for process in stale.values() if process.alive] == []
    assert out(other, "fe", "srun", "-N", "2", "id", "-un", user="alice").split() == ["alice", "alice"]


def test_lab_with_another_batch_system_is_another_lab(lab: State, plan: lifecycle.Plan) -> None:
    assert lifecycle.up(lab, plan) is False
    with pytest.raises(LabError, match="another lab is up"):
        lifecycle.up(lab, lifecycle.Plan(pool=plan.pool))


def test_machine_without_slurm_is_named_before_anything_is_made(
    other: State, plan: lifecycle.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        batch.SYSTEMS, "none", batch.System(print, print, slurm_leftovers.leftovers, ("/no/slurmd",), "x")
    )
    with pytest.raises(LabError, match=r"has no /no/slurmd \(x\)"):
        lifecycle.up(other, lifecycle.Plan(pool=plan.pool, batch="none"))
    assert traces(other) == []


def test_nodes_of_the_roles_have_torque_alone(other: State, plan: lifecycle.Plan, tmp_path: pathlib.Path) -> None:
    with pytest.raises(LabError, match="for torque alone"):
        lifecycle.up(other, lifecycle.Plan(pool=plan.pool, by_roles=tmp_path / "none", batch=batch.SLURM))
    assert traces(other) == []
