# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection that the prologue begins for the job's shell: of use when it is good, and in nobody's way else."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout, login_fifos
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

if t.TYPE_CHECKING:
    from .conftest import JobPlace

SSH = "/usr/bin/ssh"
PATIENCE_S = 120
"""Generous: a machine may be busy, and no test measures time."""


def batch_with(place: JobPlace, script: bytes, ready: t.Callable[[ProcessId], None]) -> tuple[int, bytes, bytes]:
    """A batch job for which this is done before its shell begins."""
    line = bytes(place.write_script(script)) + b"\n"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = place.start(ready=ready, **pipes)
    out, err = process.communicate(line, timeout=PATIENCE_S)
    return process.returncode, out, err


def opened(process: int) -> set[str]:
    """What a process has open now."""
    found = set()
    for path in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(path))
    return found


def test_job_runs_over_it_alone(early_place: JobPlace) -> None:
    process = early_place.start_batch(b"echo up; until [ -e seen ]; do sleep 0.1; done; exit 4\n")
    begun = early_place.process(SSH)
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    assert early_place.processes(SSH.encode()) == [begun]
    (early_place.root / "home/seen").touch()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    early_place.wait_until(lambda: early_place.processes(SSH.encode()) == [])


def test_early_login_has_the_users_environment_alone(early_place: JobPlace) -> None:
    """Torque waits for the end of what its hook was given, and ends a hook with all of its session."""
    early_place.make_ready(ProcessId.of(os.getpid()))
    begun = early_place.process(SSH)
    assert os.getsid(begun) == begun
    status = pathlib.Path(f"/proc/{begun}/status").read_text()
    uid = str(early_place.uid)
    assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status
    assert f"Gid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status
    assert "NoNewPrivs:\t1\n" in status
    assert "CapEff:\t0000000000000000\n" in status
    groups = next(line for line in status.splitlines() if line.startswith("Groups:"))
    assert groups.split()[1:] == []
    directory = f"/run/vtorque/jobs/{early_place.directory.name}"
    ours = {f"{directory}/{name}" for name in (login_fifos.SAID, login_fifos.OUT, login_fifos.ERR)} | {"/dev/null"}
    # ssh itself opens files for a moment (a table of locales, its configuration): what it was given stays open
    early_place.wait_until(lambda: {one for one in opened(begun) if not one.startswith("socket:")} <= ours)


def test_one_that_has_ended_is_passed_over(early_place: JobPlace) -> None:
    def ready(shell: ProcessId) -> None:
        early_place.make_ready(shell)
        os.kill(early_place.process(SSH), signal.SIGKILL)
        early_place.wait_until(lambda: early_place.processes(SSH.encode()) == [])

    assert batch_with(early_place, b"echo ran; exit 7\n", ready) == (7, b"ran\n", b"")


def test_one_that_ends_while_the_shell_waits_for_it_is_passed_over(early_place: JobPlace) -> None:
    """Nothing was said to it, so that nothing can have been run."""

    def ready(shell: ProcessId) -> None:
        (early_place.root / "home/.bashrc").write_text("[ -e second ] || { touch second; sleep 2; exit 3; }\n")
        early_place.make_ready(shell)
        early_place.wait_until((early_place.root / "home/second").exists)

    assert batch_with(early_place, b"echo ran; exit 7\n", ready) == (7, b"ran\n", b"")


def test_start_file_that_exits_is_told_as_ever(early_place: JobPlace) -> None:
    (early_place.root / "home/.bashrc").write_text("exit 3\n")
    status, out, err = batch_with(early_place, b"echo ran\n", early_place.make_ready)
    assert (status, out) == (1, b"")
    assert b"an exit in a start file of the login shell (.bashrc, .profile) does that" in err


def test_one_whose_far_end_never_speaks_is_given_up(early_place: JobPlace) -> None:
    """A start file that reads waits for the shell, which waits for it."""
    early_place.set_in_program("job/shell/session.py", "\nSILENT_S = 30.0\n", "\nSILENT_S = 1.0\n")

    def ready(shell: ProcessId) -> None:
        (early_place.root / "home/.bashrc").write_text("[ -e second ] || { touch second; read -r line; }\n")
        early_place.make_ready(shell)
        early_place.wait_until((early_place.root / "home/second").exists)

    assert batch_with(early_place, b"echo ran; exit 7\n", ready) == (7, b"ran\n", b"")
    early_place.wait_until(lambda: early_place.processes(SSH.encode()) == [])


def test_early_login_that_root_did_not_create_is_ignored(early_place: JobPlace) -> None:
    def ready(shell: ProcessId) -> None:
        early_place.make_ready(shell)
        os.chown(early_place.directory / login_fifos.OUT, early_place.uid, early_place.uid)

    assert batch_with(early_place, b"echo ran; exit 7\n", ready) == (7, b"ran\n", b"")


@pytest.mark.parametrize("name", [login_fifos.SAID, login_fifos.OUT, login_fifos.ERR, layout.EARLY])
def test_another_user_has_no_part_in_it(early_place: JobPlace, name: str) -> None:
    """Nor can the user put another thing in its place."""
    early_place.make_ready(ProcessId.of(os.getpid()))
    path = early_place.directory / name
    for uid, arguments in (
        (early_place.uid + 1, ["dd", f"if={path}", "count=0"]),
        (early_place.uid, ["rm", "-f", path]),
    ):
        done = subprocess.run(
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode != 0
        assert "Permission denied" in done.stderr


def test_its_end_leaves_nothing_and_ends_nobody_else(early_place: JobPlace) -> None:
    early_place.make_ready(ProcessId.of(os.getpid()))
    output = os.open(early_place.directory / login_fifos.SAID, os.O_RDONLY | os.O_NONBLOCK)
    # from its first moment neither of the programs that come before ssh
    other = subprocess.Popen(["sleep", "1000"], stdin=output, user=early_place.uid)
    os.close(output)
    early_place.stack.callback(other.wait)
    early_place.stack.callback(other.kill)
    early_place.process(SSH)
    assert login_fifos.end(early_place.directory)
    assert early_place.processes(SSH.encode()) == []
    assert other.poll() is None
    assert not list(early_place.directory.glob("early*"))
    assert not login_fifos.end(early_place.directory)
