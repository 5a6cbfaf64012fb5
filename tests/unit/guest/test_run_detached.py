# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The far end of a job whose guests are saved at times: it goes on without its connection, and is attached again."""

from __future__ import annotations

import contextlib
import os
import pathlib
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
SCRIPT = b"""\
trap 'echo got' USR1
echo first
echo wrong >&2
touch here
until [ -e go ]; do sleep 0.1; done
echo last
exit 7
"""


class FarEnd:
    """The program, with a place of its own for the job."""

    def __init__(self, place: pathlib.Path, shell: str) -> None:
        self.place, self.job = place, place / "vtorque.job"
        self.program = place / "run"
        text = FAR_END.read_text().replace("#!/bin/sh", f"#!{shell}", 1)
        assert "detached=/tmp/vtorque.job" in text
        self.program.write_text(text.replace("detached=/tmp/vtorque.job", f"detached={self.job}"))
        self.program.chmod(0o755)

    def call(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, env={"HOME": str(self.place), "USER": "u", "LOGNAME": "u", "SHELL": "/bin/sh"},
        )  # fmt: skip

    def begin(self, script: bytes = SCRIPT, *, joined: bool = False) -> subprocess.Popen[bytes]:
        path = str(self.place / "job.sh").encode()
        start = JobStart(
            {b"PATH": b"/usr/bin:/bin"}, 0o022, directory=str(self.place).encode(), shell=b"/bin/sh", script=path,
            line=path + b"\n", detached=True, joined=joined,
        )  # fmt: skip
        process = self.call("batch", "A")
        send(process, start.message(b"#!/bin/sh\n" + script))
        return process

    def wait_for(self, name: str) -> None:
        stop = time.monotonic() + PATIENCE_S
        while not (self.place / name).exists():
            assert time.monotonic() < stop, name
            threading.Event().wait(0.02)


@pytest.fixture(params=["dash", "busybox"])
def far_end(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> t.Iterator[FarEnd]:
    here = FarEnd(tmp_path, {"dash": "/usr/bin/dash", "busybox": "/usr/bin/busybox sh"}[request.param])
    yield here
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(here.program).encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


def send(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def read_all(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    late = threading.Timer(PATIENCE_S, process.kill)
    late.start()
    found = process.stdout.read().decode(), process.stderr.read().decode()
    late.cancel()
    process.wait()
    return found


def test_detached_job_prints_and_ends_as_one_that_is_not(far_end: FarEnd) -> None:
    (far_end.place / "go").touch()
    out, err = read_all(far_end.begin())
    assert out == "vtorque-A-begin\nfirst\nlast\nvtorque-A-end exit 7\n"
    assert err == "vtorque-A-begin\nwrong\nvtorque-A-end exit 7\n"


def test_detached_job_goes_on_without_its_connection_and_prints_all_of_it_again(far_end: FarEnd) -> None:
    first = far_end.begin()
    far_end.wait_for("here")
    assert first.stdin is not None
    first.stdin.close()
    assert "end" not in "".join(read_all(first))
    second = far_end.call("attach", "B")
    (far_end.place / "go").touch()
    out, err = read_all(second)
    assert out == "vtorque-B-begin\nfirst\nlast\nvtorque-B-end exit 7\n"
    assert err == "vtorque-B-begin\nwrong\nvtorque-B-end exit 7\n"
    # it may be asked again for as long as the guest lives
    assert read_all(far_end.call("attach", "C"))[0] == "vtorque-C-begin\nfirst\nlast\nvtorque-C-end exit 7\n"


def test_signal_over_a_second_connection_reaches_the_job(far_end: FarEnd) -> None:
    first = far_end.begin(SCRIPT.replace(b"sleep 0.1", b"sleep 0.1; [ ! -e out ] || cat out"))
    far_end.wait_for("here")
    first.kill()
    first.wait()
    second = far_end.call("attach", "B")
    send(second, b"signal 15\n")
    assert read_all(second)[0].endswith("vtorque-B-end signal 15\n")


def test_streams_of_a_joined_job_keep_their_order(far_end: FarEnd) -> None:
    script = b"for i in 1 2 3; do echo out $i; echo err $i >&2; done\n"
    out, err = read_all(far_end.begin(script, joined=True))
    lines = [f"{name} {number}" for number in (1, 2, 3) for name in ("out", "err")]
    assert out.splitlines() == ["vtorque-A-begin", *lines, "vtorque-A-end exit 0"]
    assert err == "vtorque-A-begin\nvtorque-A-end exit 0\n"


def test_second_job_in_a_guest_and_attaching_to_none_are_refused(far_end: FarEnd) -> None:
    assert "end broken there is no job in this guest" in read_all(far_end.call("attach", "B"))[0]
    (far_end.place / "go").touch()
    read_all(far_end.begin())
    assert "end broken a job is in this guest already" in read_all(far_end.begin())[0]
