# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job left on a node is found by its session or its cgroup, and nothing else is touched."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import job_processes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal.job_processes import Marks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

UID = 61000 + os.getpid() % 4000
JOB = "7.head"
PLAIN = "import sys; print('up', flush=True); sys.stdin.read()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {PLAIN}"


@pytest.fixture
def started() -> t.Iterator[t.Callable[..., subprocess.Popen[str]]]:
    """Starts a program that says `up`; by default as the job's user in a session of its own."""
    with contextlib.ExitStack() as stack:

        def start(text: str = PLAIN, uid: int = UID, **how: t.Any) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                ["/usr/bin/python3", "-I", "-c", text], user=uid, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, **{"start_new_session": True, **how},
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            return process

        yield start


def marks(session: int, shell: ProcessId | None = None, over: float | None = None) -> Marks:
    return Marks(JOB, UID, session, shell, job_processes.ticks_of(over or time.monotonic() + 60))


def ours(known: Marks) -> list[int]:
    return [seen.pid for seen in job_processes.list_processes(known) if seen.ours]


def end(known: Marks, seconds: float = 60) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return job_processes.end(known, Deadline.after(seconds))


def test_the_session_is_ended_and_nothing_else_of_the_users(started: t.Any) -> None:
    job, other = started(), started()
    known = marks(job.pid)
    assert {seen.pid: seen.ours for seen in job_processes.list_processes(known)} == {job.pid: True, other.pid: False}
    ended, left = end(known)
    assert (ended, left) == ((f"{job.pid} (python3)",), ())
    assert job.wait() == -signal.SIGTERM
    assert other.poll() is None


def test_process_that_ignores_term_is_killed(started: t.Any) -> None:
    job = started(STUBBORN)
    assert end(marks(job.pid))[1] == ()
    assert job.wait() == -signal.SIGKILL


FORKS = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os._exit(0)
print("up", flush=True)
sys.stdin.read()
"""


def test_process_of_a_session_without_a_leader_is_found(started: t.Any) -> None:
    job = started(FORKS)
    job.wait()
    (pid,) = ours(marks(job.pid))
    handle = os.pidfd_open(pid)
    assert end(marks(job.pid)) == ((f"{pid} (python3)",), ())
    os.close(handle)
    assert job_processes.list_processes(marks(job.pid)) == ()


def test_session_of_another_with_the_number_of_the_jobs_is_left_alone(started: t.Any) -> None:
    """The job's was empty, and its number was given again: to what began later, or to what is not the known shell."""
    other = started()
    known = ProcessId.of(other.pid)
    assert ours(marks(other.pid, known)) == [other.pid]
    assert ours(marks(other.pid, over=time.monotonic() - 3600)) == []
    assert ours(marks(other.pid, ProcessId(known.pid, known.start_ticks - 1))) == []
    assert end(marks(other.pid, over=time.monotonic() - 3600)) == ((), ())
    assert other.poll() is None


@pytest.mark.parametrize("session", [0, 1, -1])
def test_without_a_session_nothing_is_found_by_it(started: t.Any, session: int) -> None:
    started()
    assert [seen.ours for seen in job_processes.list_processes(marks(session))] == [False]


@pytest.mark.parametrize("uid", [0, UID + 1], ids=["root's", "another's"])
def test_process_of_another_user_is_not_the_jobs(started: t.Any, uid: int) -> None:
    """Also root's, which is in the job's cgroup when the MOM has put its hook there."""
    other = started(uid=uid)
    assert job_processes.list_processes(marks(other.pid)) == ()
    assert end(marks(other.pid)) == ((), ())
    assert other.poll() is None


def test_number_that_became_anothers_is_not_sent_to(started: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the signal the process ended, and another has its number."""
    job, other = started(), started()
    known = marks(job.pid)
    real = job_processes.list_processes
    looks = iter(
        [tuple(job_processes.UserProcess(other.pid, seen.command, seen.ours) for seen in real(known) if seen.ours)]
    )
    monkeypatch.setattr(job_processes, "list_processes", lambda marks: next(looks, ()))
    end(known)
    assert (job.poll(), other.poll()) == (None, None)


def test_process_that_does_not_end_in_time_is_reported(started: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = started(STUBBORN)
    monkeypatch.setattr(job_processes.signal, "pidfd_send_signal", lambda *_words: None)
    assert end(marks(job.pid), 0.0) == ((), (f"{job.pid} (python3)",))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("3:cpuset:/torque/7.head", True),
        ("3:cpu,cpuacct:/torque/7.head/R0.t0", True),
        ("0::/torque/7.head", True),
        ("3:cpuset:/torque/7.head2", False),
        ("3:cpuset:/torque/17.head", False),
        ("3:cpuset:/torque", False),
        ("3:cpuset:/user.slice/user-1000.slice/torque/7.head", False),
        ("1:name=a:b:/torque/7.head", False),
        ("nonsense", False),
    ],
)
def test_cgroup_of_a_job(line: str, found: bool) -> None:
    assert job_processes.in_cgroup(f"9:pids:/\n{line}\n0::/\n", JOB) is found


CGROUPS = pathlib.Path("/sys/fs/cgroup")


@pytest.fixture
def cgroup() -> t.Iterator[pathlib.Path]:
    """The job's, as a MOM makes it, in one hierarchy."""
    root = CGROUPS / "pids" if (CGROUPS / "pids").is_dir() else CGROUPS
    place = root / "torque" / f"{os.getpid()}.head"
    try:
        place.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error}")
    yield place
    place.rmdir()
    with contextlib.suppress(OSError):
        place.parent.rmdir()


def test_process_outside_the_session_is_found_by_its_cgroup(started: t.Any, cgroup: pathlib.Path) -> None:
    lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    if not all(line.endswith(":/") for line in lines if "pids" in line or "::" in line):
        pytest.skip("this process does not see the root of its cgroups")
    daemon, other = started(), started()
    (cgroup / "cgroup.procs").write_text(str(daemon.pid))
    known = Marks(cgroup.name, UID, 0, None, 0)
    assert ours(known) == [daemon.pid]
    assert end(known)[1] == ()
    assert (daemon.wait(), other.poll()) == (-signal.SIGTERM, None)
