# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job left on a node is ended only where the node was its own at the start and is so now."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import pwd
import signal
import subprocess
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import HookCall, Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.start import Places, Start
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout, shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import exclusive_note
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.upkeep import leftover_processes

UID = 61000 + os.getpid() % 4000
JOB = "7.head"
FAR = 1e12
PROGRAM = """
import ctypes, sys
print("up", flush=True)
for line in sys.stdin:
    ctypes.CDLL(None).prctl(15, bytes.fromhex(line), 0, 0, 0)
    print("named", flush=True)
"""
"""Takes names (PR_SET_NAME), until it is ended."""
KNOWN = pwd.getpwnam


def saying(output: frozenset[str] | VTorqueError) -> t.Callable[[], frozenset[str]]:
    """Say it, or raise it."""

    def say() -> frozenset[str]:
        if isinstance(output, VTorqueError):
            raise output
        return output

    return say


class Batch:
    """A server; `said` may raise."""

    def __init__(self) -> None:
        self.output = saying(frozenset({JOB}))
        self.asked = 0

    def jobs(self, _node: str) -> frozenset[str]:
        self.asked += 1
        return self.output()


class Place:
    """A node at the end of a job that left a process in its session."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.batch = Batch()
        self.policy = Policy(torque_home=str(directory / "torque"))
        (directory / "torque/mom_priv/jobs").mkdir(parents=True)
        self.start = Start(JOB, 1, Places(run_dir=directory / "run", state_dir=directory / "state"))
        files.make_directory(self.start.directory)
        files.make_record_directory(self.start.record_directory)
        self.deadlines: list[Deadline] = []
        patch.setattr(exclusive_note, "open_batch", self._open_batch)
        patch.setattr(
            leftover_processes.pwd, "getpwnam", lambda _name: dataclasses.make_dataclass("P", ["pw_uid"])(UID)
        )
        patch.setattr(leftover_processes.hook_call, "hook_began", lambda: FAR)
        self.log = self.start.open_log(None)
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "-I", "-c", PROGRAM], user=UID,
            start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout
        assert self.process.stdout.readline() == b"up\n"

    def _open_batch(self, _policy: Policy, *, deadline: Deadline) -> Batch:
        self.deadlines.append(deadline)
        return self.batch

    def was(self, *others: str) -> None:
        """What was beside the job at its start."""
        data = {"job_id": JOB, "start": 1, "others": others}
        files.write(self.start.record_directory / layout.ALONE, json.dumps(data))

    def end(self, *, until: float = FAR, **changes: t.Any) -> str:
        """The end of the job, in a hook that must be done then; what the log says."""
        call = HookCall(Role.END_FIRST, True, 1, "cn1", JOB, "alice", 0, self.process.pid)
        policy = dataclasses.replace(self.policy, **changes)
        leftover_processes.end_leftovers(call, self.start, policy, until, self.log)
        return (self.start.record_directory / "vtorque.log").read_text()

    def name(self, name: bytes) -> None:
        """Let the process call itself so."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(name.hex().encode() + b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"named\n"

    @property
    def lives(self) -> bool:
        return self.process.poll() is None


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Place]:
    here = Place(tmp_path, monkeypatch)
    with here.process, here.log:
        yield here
        here.process.kill()


def test_leftover_process_is_ended_and_reported(place: Place) -> None:
    place.was()
    assert f"ended on cn1: {place.process.pid} (python3)" in place.end()
    assert place.process.wait() == -signal.SIGTERM


@pytest.mark.parametrize("left_s", [3.0, -1.0])
def test_server_that_hangs_is_given_no_more_than_the_hook_has(place: Place, left_s: float) -> None:
    """Torque kills an epilogue that is late, and the job's record is closed after this."""
    place.was()
    place.end(until=time.monotonic() + left_s)
    (deadline,) = place.deadlines
    assert deadline.left_s() <= max(0.0, left_s)


def test_a_process_that_calls_itself_a_line_of_the_log_is_one_harmless_line(place: Place) -> None:
    place.was()
    name = b"a\x1b[2J\n202601("
    place.name(name)
    log = place.end()
    (line,) = (line for line in log.splitlines() if "ended on cn1" in line)
    assert line.endswith(f"ended on cn1: {place.process.pid} (a?[2J?202601()")
    assert "\x1b" not in log


@pytest.mark.parametrize(
    ("was", "output", "message"),
    [
        (None, {JOB}, "since nobody knows whether the job had it for itself"),
        (("job 8.head",), {JOB}, "which the job did not have for itself (job 8.head)"),
        ((), {JOB, "8.head"}, "which the job does not have for itself (job 8.head)"),
        ((), SiteFault("pbsnodes", "no answer"), "since the batch system does not tell"),
    ],
)
def test_a_node_that_is_not_the_jobs_alone_is_left_alone(
    place: Place, was: tuple[str, ...] | None, output: t.Any, message: str
) -> None:
    if was is not None:
        place.was(*was)
    place.batch.output = saying(output)
    text = place.end()
    assert f"left on cn1, {message}" in text
    assert f"{place.process.pid} (python3)" in text
    assert place.lives


def test_files_of_another_job_protect_too(place: Place) -> None:
    place.was()
    (pathlib.Path(place.policy.torque_home) / "mom_priv/jobs/8.head.JB").touch()
    assert "(file 8.head.JB)" in place.end()
    assert place.lives


def test_site_that_does_not_want_it_asks_nothing(place: Place) -> None:
    place.was()
    assert place.end(kill_user_processes_after_job=False) == ""
    assert (place.lives, place.batch.asked) == (True, 0)


def test_process_of_no_job_is_reported_without_asking_the_server(place: Place) -> None:
    """A session of that number began after the job: it is another's."""
    place.was()
    shell_link.point(ProcessId(place.process.pid, 1), place.start.directory, place.start.places.run_dir)
    text = place.end()
    assert "left on cn1, alice's, neither the job's session nor its cgroup tells whose they are" in text
    assert (place.lives, place.batch.asked) == (True, 0)


def test_of_a_sister_no_session_is_known(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    place.was()
    arguments = ["alice", JOB, "1"]
    leftover_processes.end_leftovers_of_sister(arguments, lambda: place.policy, "cn2")
    assert "left on cn2, alice's" in capfd.readouterr().err
    assert place.lives


def test_sister_whose_configuration_is_broken_ends_nothing(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> t.NoReturn:
        raise SiteFault("vtorque.yml", "is broken")

    leftover_processes.end_leftovers_of_sister(["alice", JOB, "1"], broken, "cn2")
    assert (capfd.readouterr().err, place.lives) == ("", True)


def test_user_who_is_not_known_here_has_nothing_here(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftover_processes.pwd, "getpwnam", KNOWN)
    place.was()
    call = HookCall(Role.END_FIRST, True, 1, "cn1", JOB, "no-such-user", 0, place.process.pid)
    leftover_processes.end_leftovers(call, place.start, place.policy, FAR, place.log)
    assert place.lives


@pytest.mark.parametrize(("output", "others"), [({JOB}, []), ({JOB, "8.head"}, ["job 8.head"])])
def test_neighbours_are_noted_at_the_start(place: Place, output: set[str], others: list[str]) -> None:
    place.batch.output = saying(frozenset(output))
    exclusive_note.note_neighbours(JOB, 1, place.policy, "cn1", place.start.record_directory)
    assert files.read_json(place.start.record_directory / layout.ALONE)["others"] == others


def test_server_that_is_silent_at_the_start_leaves_no_note(place: Place) -> None:
    place.batch.output = saying(SiteFault("pbsnodes", "no answer"))
    with pytest.raises(SiteFault):
        exclusive_note.note_neighbours(JOB, 1, place.policy, "cn1", place.start.record_directory)
    assert not (place.start.record_directory / layout.ALONE).exists()
