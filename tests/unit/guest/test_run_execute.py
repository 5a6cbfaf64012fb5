# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The far end with a script that is executed itself, as Slurm does it: run for real, under more than one shell."""

from __future__ import annotations

import pathlib
import re
import signal
import subprocess
import threading
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.environment import JobStart
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

FAR_END = templates.COLLECTION_DIR / "guest/run.sh"
PATIENCE_S = 60


@pytest.fixture(params=["dash", "bash", "busybox"])
def far_end(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    shell = {"dash": "/usr/bin/dash", "bash": "/bin/bash --posix", "busybox": "/usr/bin/busybox sh"}[request.param]
    program = tmp_path / "run"
    program.write_text(FAR_END.read_text().replace("#!/bin/sh", f"#!{shell}", 1))
    program.chmod(0o755)
    return program


def begin(far_end: pathlib.Path, script: bytes, *arguments: bytes, **variables: str) -> subprocess.Popen[bytes]:
    job = {name.encode(): value.encode() for name, value in {"PATH": "/usr/bin:/bin", **variables}.items()}
    start = JobStart(
        job, 0o022, directory=str(far_end.parent).encode(), script=b"/var/lib/slurm/slurmd/job00004/slurm_script",
        execute=True, arguments=arguments,
    )  # fmt: skip
    home = far_end.parent / "home"
    home.mkdir(exist_ok=True)
    (home / ".profile").write_text("echo a profile was read\n")
    process = subprocess.Popen(
        [far_end, "batch", "T"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"HOME": str(home), "USER": "u", "LOGNAME": "u", "SHELL": "/bin/sh"},
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(start.message(script))
    process.stdin.flush()
    return process


def end(process: subprocess.Popen[bytes]) -> tuple[str, str, str]:
    """What the script wrote on both streams, and how the far end says that it ended."""
    out, err = process.stdout, process.stderr
    assert out is not None
    assert err is not None
    late = threading.Timer(PATIENCE_S, process.kill)
    late.start()
    text, errors = out.read().decode(), err.read().decode()
    late.cancel()
    process.wait()
    how = re.search(r"vtorque-T-end (.*)\n", text)
    assert how, text + errors
    own = [re.sub(r"vtorque-T-.*\n", "", stream) for stream in (text, errors)]
    return own[0], own[1], how[1]


def job(far_end: pathlib.Path, script: bytes, *arguments: bytes, **variables: str) -> tuple[str, str, str]:
    return end(begin(far_end, script, *arguments, **variables))


def send(process: subprocess.Popen[bytes], number: int, ready: pathlib.Path) -> None:
    """Send a signal as the job's shell does, once the script is at work."""
    stop = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not ready.exists():
        assert time.monotonic() < stop
        pause.wait(0.02)
    assert process.stdin is not None
    process.stdin.write(b"signal %d\n" % number)
    process.stdin.flush()


def test_script_is_executed_by_its_own_interpreter_with_its_arguments(far_end: pathlib.Path) -> None:
    script = b"#!/usr/bin/python3 -I\nimport sys\nprint(sys.argv[1:])\nprint(sys.argv[0].split('/')[-1])\n"
    out, _err, how = job(far_end, script, b"a b", b"", b'it\'s "q" $HOME *', b"x\ny")
    assert out == "['a b', '', 'it\\'s \"q\" $HOME *', 'x\\ny']\nslurm_script\n"
    assert how == "exit 0"


def test_no_profile_is_read_and_standard_input_is_empty(far_end: pathlib.Path) -> None:
    out, err, how = job(far_end, b'#!/bin/sh\nwc -c; pwd; echo "$ODD"; echo err >&2\n', ODD="a 'b'\n$c")
    assert out == f"0\n{far_end.parent}\na 'b'\n$c\n"
    assert (err, how) == ("err\n", "exit 0")


@pytest.mark.parametrize("status", [1, 37, 126, 130, 137, 255])
def test_exit_status_is_the_scripts(far_end: pathlib.Path, status: int) -> None:
    assert job(far_end, b"#!/bin/sh\nexit %d\n" % status)[2] == f"exit {status}"


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "USR1"])
def test_death_by_a_signal_is_told_from_a_status(far_end: pathlib.Path, name: str) -> None:
    number = signal.Signals[f"SIG{name}"].value
    assert job(far_end, b"#!/bin/sh\nulimit -c 0\nkill -%s $$\nsleep 60\n" % name.encode())[2] == f"signal {number}"


@pytest.mark.parametrize("name", ["USR1", "USR2", "HUP", "TERM"])
def test_signal_for_the_script_is_for_it_alone(far_end: pathlib.Path, name: str, tmp_path: pathlib.Path) -> None:
    script = f"""#!/bin/sh
trap 'echo trapped; touch {tmp_path}/go' {name}
( trap 'echo the child, too' {name}; touch {tmp_path}/ready; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done ) &
while :; do wait && break; done
exit 9
"""
    process = begin(far_end, script.encode())
    send(process, signal.Signals[f"SIG{name}"].value, tmp_path / "ready")
    assert end(process)[::2] == ("trapped\n", "exit 9")


def test_trap_of_the_script_runs_when_a_cancel_comes(far_end: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script = f"#!/bin/sh\ntrap 'echo trapped; exit 4' TERM\nsleep 600 &\ntouch {tmp_path}/ready\nwait\nwait\n"
    process = begin(far_end, script.encode())
    send(process, signal.SIGTERM, tmp_path / "ready")
    assert end(process)[::2] == ("trapped\n", "exit 4")


def test_script_ends_with_the_connection_and_leaves_nothing(far_end: pathlib.Path, tmp_path: pathlib.Path) -> None:
    place: t.Any = tmp_path / "place"
    script = f"#!/bin/sh\ntrap '' TERM HUP\necho ${{0%/*}} >{place}\nmv {place} {place}.there\nsleep 600\n"
    process = begin(far_end, script.encode())
    send(process, signal.SIGCONT, tmp_path / "place.there")
    assert process.stdin is not None
    process.stdin.close()
    assert end(process)[2] == "signal 9"
    assert not pathlib.Path((tmp_path / "place.there").read_text().strip()).exists()


def test_signal_for_the_others_is_for_all_that_the_script_has_started(
    far_end: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """In its own process group and in others of its session; `signal 15` is for the script itself."""
    child = """trap 'echo child; exit' TERM; touch {place}/{name}; while :; do sleep 0.05; done"""
    same, other = (child.format(place=tmp_path, name=name) for name in ("same", "other"))
    script = f"""#!/bin/bash
trap 'echo trapped' TERM
( {same} ) &
set -m
( {other} ) &
set +m
until [ -e {tmp_path}/same ] && [ -e {tmp_path}/other ]; do sleep 0.05; done
touch {tmp_path}/ready
wait; wait; wait
exit 9
"""
    process = begin(far_end, script.encode())
    assert process.stdin is not None
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
    process.stdin.write(b"others 15\n")
    process.stdin.flush()
    assert end(process)[::2] == ("child\nchild\n", "exit 9")
