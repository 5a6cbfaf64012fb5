# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque-shell over a real ssh connection to a real far end; only the virtual machine is missing."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import resource
import select
import shlex
import signal
import subprocess
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.job_signals import CHECKPOINT, PARK
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import records, shell_message
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import RefusalRecord
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files as files_module
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

if t.TYPE_CHECKING:
    from .conftest import JobPlace

JOB_ID = "4711.head"
PATIENCE_S = 120
"""Generous: a machine may be busy, and no test measures time."""


@pytest.mark.parametrize("status", [0, 1, 37, 69, 126, 130, 143, 254, 255])
def test_exit_status_is_the_scripts(job_place: JobPlace, status: int) -> None:
    """255 too, which is also how ssh says that it failed; 143, which is also how a shell says TERM."""
    answer = job_place.batch(f"exit {status}\n".encode())
    assert (answer.status, answer.out, answer.err) == (status, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
def test_death_of_the_jobs_shell_by_a_signal_stays_one(job_place: JobPlace, number: int) -> None:
    answer = job_place.batch(f"kill -{int(number)} $PPID\nsleep 60\n".encode())
    assert answer.status == -number


def test_streams_stay_apart_and_exact(job_place: JobPlace) -> None:
    script = b"printf 'a\\000b\\377\\r\\n'; printf 'no end of line' >&2; exit 3\n"
    answer = job_place.batch(script)
    assert (answer.status, answer.out, answer.err) == (3, b"a\0b\xff\r\n", b"no end of line")


def test_streams_that_are_one_file_keep_their_order(job_place: JobPlace) -> None:
    """`qsub -j`: the MOM opens the file twice, to append."""
    file = job_place.root / "joined"
    file.touch()
    script = job_place.write_script(b"for n in $(seq 500); do echo out $n; echo err $n >&2; done; exit 3\n")
    with file.open("ab") as out, file.open("ab") as err:
        process = job_place.start(ready=job_place.make_ready, stdin=subprocess.PIPE, stdout=out, stderr=err)
    process.communicate(bytes(script) + b"\n", timeout=PATIENCE_S)
    assert process.returncode == 3
    assert file.read_text().splitlines() == [f"{name} {n}" for n in range(1, 501) for name in ("out", "err")]


def test_much_output_arrives_whole(job_place: JobPlace) -> None:
    script = b"head -c 20000000 /dev/urandom | tee /dev/fd/3 3>&2 | cat\n"
    answer = job_place.batch(b"#!/bin/bash\nexec 3>&2\n" + script)
    assert len(answer.out) == len(answer.err) == 20_000_000
    assert hashlib.sha256(answer.out).digest() == hashlib.sha256(answer.err).digest()


def test_output_comes_as_it_is_made(job_place: JobPlace) -> None:
    """Not at the end: the job waits until its first word was read here."""
    process = job_place.start_batch(b"echo first; until [ -e seen ]; do sleep 0.1; done; rm seen; echo last\n")
    assert process.stdout
    assert process.stdout.readline() == b"first\n"
    job_place.give("seen")
    assert process.communicate(timeout=PATIENCE_S)[0] == b"last\n"


def test_script_is_called_as_torque_calls_it(job_place: JobPlace) -> None:
    """Same path and $0, arguments as the login shell reads them, its own `#!` line, 0700, the pipe at its end."""
    script = b'#!/bin/bash\necho "$0"; printf "<%s>" "$@"; stat -c %a "$0"; cat; echo "[$?]"; pwd; umask\n'
    answer = job_place.batch(script, b"'a  b' \"c\" \\* $PBS_NP")
    path = job_place.root / "jobs" / f"{JOB_ID}.SC"
    assert answer.out.decode() == f"{path}\n<a  b><c><*><3>700\n[0]\n{job_place.root}/home\n0022\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param(b"#!/bin/sh\necho sh\n", (0, b"sh\n"), id="sh"),
        pytest.param(b"echo $PBS_JOBID\n", (0, b"4711.head\n"), id="no interpreter"),
        pytest.param(b"", (0, b""), id="empty"),
        pytest.param(b"#!/usr/bin/python3\nprint('py')\n", (0, b"py\n"), id="python"),
        pytest.param(b"#!/bin/echo\n", None, id="echo"),
    ],
)
def test_kinds_of_script(job_place: JobPlace, script: bytes, expected: tuple[int, bytes] | None) -> None:
    answer = job_place.batch(script)
    path = job_place.root / "jobs" / f"{JOB_ID}.SC"
    assert (answer.status, answer.out) == (expected or (0, f"{path}\n".encode()))


def test_script_with_carriage_returns_fails_as_on_the_node(job_place: JobPlace) -> None:
    answer = job_place.batch(b"#!/bin/sh\r\necho x\r\n")
    assert answer.status in (126, 127)
    assert b"not found" in answer.err or b"bad interpreter" in answer.err or b"No such file" in answer.err


VALUES = {
    "QUOTES": 'it\'s "a" `b` $(c) \\ $HOME * ;&|',
    "LINES": "one\ntwo\n\nend\n",
    "UNICODE": "žluťoučký 🐎 \u2028",
    "EMPTY": "",
    "EQUALS": "a=b=c",
    "BLANK NAME": "odd",
    "BASH_FUNC_hello%%": '() {  echo "hello from a function: $1"\n}',
    "LD_LIBRARY_PATH": "/nonexistent",
    "PYTHONHOME": "/nonexistent",
    "PYTHONPATH": "/nonexistent",
    "BASH_ENV": "/nonexistent/bash_env",
    "ENV": "/nonexistent/env",
    "IFS": "x",
}


def test_environment_arrives_byte_by_byte(job_place: JobPlace) -> None:
    """What `-v` and `-V` may hold; none of it has an effect on vtorque-shell or ssh."""
    script = (
        b"#!/usr/bin/python3 -I\nimport os\nfor k, v in os.environb.items():\n    os.write(1, k + b'=' + v + b'\\0')\n"
    )
    answer = job_place.batch(script, extra=VALUES)
    assert answer.status == 0, answer.err
    found = dict(entry.split(b"=", 1) for entry in answer.out.split(b"\0")[:-1])
    expected = dict(VALUES)
    if not job_place.shell.endswith("bash"):  # such a shell does not hand on what is no name of a variable
        expected = {name: value for name, value in expected.items() if name.isidentifier()}
    expected.pop("IFS")  # every shell begins with its own
    assert {name: found.get(name.encode(), b"absent").decode() for name in expected} == expected


def test_function_of_bash_arrives(job_place: JobPlace) -> None:
    answer = job_place.batch(b"#!/bin/bash\nhello 'a b'\n", extra=VALUES, user_shell="/bin/bash")
    assert answer.out == b"hello from a function: a b\n"


def test_variables_describe_the_guest(job_place: JobPlace) -> None:
    answer = job_place.batch(b"env\n", extra={"DISPLAY": ":0", "PBS_MICFILE": "/x"})
    found = dict(line.split("=", 1) for line in answer.out.decode().splitlines() if "=" in line)
    assert {name: found[name] for name in ("PBS_NP", "PBS_NUM_NODES", "PBS_NUM_PPN", "DISTRO", "SHELL", "USER")} == {
        "PBS_NP": "3", "PBS_NUM_NODES": "1", "PBS_NUM_PPN": "3", "DISTRO": "SLG", "SHELL": job_place.shell,
        "USER": "alice",
    }  # fmt: skip
    assert not {"TMPDIR", "PBS_GPUFILE", "PBS_MICFILE", "DISPLAY", "SSH_CONNECTION"} & set(found)


def test_what_the_job_does_not_have_of_its_variables_is_said_for_its_log(job_place: JobPlace) -> None:
    """Also when who reads it comes late; the FIFO is root's, and the user may write to it."""

    def ready(shell: ProcessId) -> None:
        job_place.make_ready(shell)
        shell_message.offer(job_place.directory, job_place.uid)

    process = job_place.start(ready=ready, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(bytes(job_place.write_script(b"echo up; until [ -e go ]; do sleep 0.1; done; rm go\n")) + b"\n")
    process.stdin.close()
    process.stdin = None
    started(process)
    listener = shell_message.Listener(job_place.directory)
    assert listener.receive_message() == (
        "of the job's variables dropped, as they name what only the node has: PBS_GPUFILE TMPDIR; "
        "replaced, as they count the guests: PBS_NP PBS_NUM_NODES PBS_NUM_PPN"
    )
    job_place.give("go")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_shell_of_the_user_is_honoured(job_place: JobPlace) -> None:
    answer = job_place.batch(b'echo "$SHELL"; tr "\\0" " " </proc/$PPID/cmdline\n', user_shell="/bin/bash")
    assert answer.out == b"/bin/bash\n/bin/bash -l "


def test_start_directory(job_place: JobPlace) -> None:
    answer = job_place.batch(b"pwd\n", extra={"PBS_O_INITDIR": "/usr/share"})
    assert answer.out == b"/usr/share\n"
    answer = job_place.batch(b"pwd\n", extra={"PBS_O_INITDIR": "/not there"})
    assert answer.status == 1
    assert b"vtorque: the start directory /not there is not there in the guest; nothing was run\n" in answer.err


def test_limits_are_those_of_the_node(job_place: JobPlace) -> None:
    """The guest's sshd has others."""
    # more than are open here, whatever ran in this process before
    files = min(4001, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    wanted = {
        resource.RLIMIT_NOFILE: files, resource.RLIMIT_STACK: 4 << 20, resource.RLIMIT_FSIZE: 7 << 20,
        resource.RLIMIT_CPU: 4321, resource.RLIMIT_CORE: 0, resource.RLIMIT_NPROC: 3001,
        resource.RLIMIT_MSGQUEUE: 40960, resource.RLIMIT_SIGPENDING: 777, resource.RLIMIT_RSS: 8 << 30,
    }  # fmt: skip
    former = {which: resource.getrlimit(which) for which in wanted}
    try:
        for which, soft in wanted.items():
            resource.setrlimit(which, (soft, former[which][1]))
        answer = job_place.batch(b"for n in n s u q i m f t c; do ulimit -S -$n; done; ulimit -H -n\n")
    finally:
        for which, limits in former.items():
            resource.setrlimit(which, limits)
    *seen, blocks, seconds, core, hard = (int(line) for line in answer.out.split())
    assert seen == [files, 4096, 3001, 40960, 777, 8 << 20]
    assert (seconds, core, hard) == (4321, 0, former[resource.RLIMIT_NOFILE][1])
    assert blocks in ((7 << 20) // 512, 7 << 10)  # bash counts in other blocks


def test_profile_is_read_and_the_connection_is_not_disturbed_by_dotfiles(job_place: JobPlace) -> None:
    """.bashrc is read by a bash that sshd starts; what it prints is no part of the job, whatever it is."""
    home = job_place.root / "home"
    (home / ".profile").write_text("export PROFILE=read\n")
    (home / ".bashrc").write_text("echo noise; echo noise >&2; set -e; exit() { :; }\n")
    try:
        answer = job_place.batch(b"echo $PROFILE; exit 4\n")
    finally:
        for name in (".profile", ".bashrc"):
            (home / name).unlink()
    assert (answer.status, answer.out, answer.err) == (4, b"read\n", b"")


def test_login_that_bounds_every_read_does_not_end_the_job(early_place: JobPlace) -> None:
    """RHEL's bash reads /etc/profile.d for a command too, where sites set TMOUT; its sh is bash."""
    early_place.far_end.write_text(early_place.far_end.read_text().replace("#!/bin/sh", "#!/bin/bash", 1))
    (early_place.root / "home/.bashrc").write_text("export TMOUT=1\n")
    answer = early_place.batch(b"echo ${TMOUT-no bound}; sleep 4; echo done\n")
    assert (answer.status, answer.out, answer.err) == (0, b"no bound\ndone\n", b"")


def test_nothing_is_written_on_the_node(job_place: JobPlace) -> None:
    job_place.batch(b"true\n")
    assert sorted(path.name for path in (job_place.root / "home").iterdir()) == []


def test_processes_left_in_the_background_do_not_hold_the_job(job_place: JobPlace) -> None:
    answer = job_place.batch(b"sleep 1000 & setsid sleep 15 & echo done; exit 6\n")
    assert (answer.status, answer.out) == (6, b"done\n")
    # one that was killed has its words until it is scheduled
    job_place.wait_until(lambda: not job_place.processes(b"sleep\x001000"))


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize("program", ["while echo tick; do sleep 1; done", "yes"])
def test_daemon_that_goes_on_printing_does_not_hold_the_job(job_place: JobPlace, program: str, stream: int) -> None:
    """What the job itself printed is there before it, whole; how much comes of the daemon, nobody promised."""
    daemon = shlex.quote(f"echo tick; touch printing; {program}")
    wait = "until [ -e printing ]; do sleep 0.1; done; rm printing"
    script = f"seq 200000; seq 200000 >&2\nsetsid sh -c {daemon} >&{stream} &\n{wait}; exit 6\n"
    answer = job_place.batch(script.encode())
    own = "".join(f"{n}\n" for n in range(1, 200_001)).encode()
    assert answer.status == 6
    for number, output in enumerate((answer.out, answer.err), 1):
        assert output.startswith(own)
        assert set(output[len(own) :]) <= (set(b"tick y\n") if number == stream else set())
    job_place.wait_until(lambda: not job_place.processes(program.encode()))


@pytest.mark.parametrize("program", ["sleep 30", "yes"])
@pytest.mark.parametrize("marked", ['mark "$@"', 'mark "$@" >&4'])
def test_end_that_is_told_on_one_stream_alone_is_an_end(early_place: JobPlace, marked: str, program: str) -> None:
    """A silent daemon holds the other one, or one that fills it."""
    text, both = early_place.far_end.read_text(), '    mark "$@"\n    mark "$@" >&4\n'
    assert text.count(both) == 1
    early_place.far_end.write_text(text.replace(both, f'[ "$1" = end ] && {marked} && return\n{both}'))
    early_place.set_in_program("job/shell/session.py", "MARK_S, ON_THE_WAY = 60.0, ", "MARK_S, ON_THE_WAY = 1.0, ")
    stream = 1 if ">&4" in marked else 2
    answer = early_place.batch(f"seq 200000; seq 200000 >&2\nsetsid {program} >&{stream} &\nexit 6\n".encode())
    own = "".join(f"{n}\n" for n in range(1, 200_001)).encode()
    assert (answer.status, answer.out.startswith(own), answer.err.startswith(own)) == (6, True, True)


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
@pytest.mark.parametrize("stream", [1, 2])
def test_far_end_waits_for_room_in_a_pipe_that_does_not_block(shell: str, stream: int) -> None:
    """A job may leave its streams so (ssh and node.js do), and full; without the mark its end would not be known."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    full = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            full += os.write(into, b"x" * 4096)
    program = [*shell.split(), str(templates.COLLECTION_DIR / "guest/run.sh"), "bring", "token"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {("stdout", "stderr")[stream - 1]: into}
    with subprocess.Popen(program, stdin=subprocess.DEVNULL, **streams) as process:
        os.close(into)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        late = time.monotonic() + PATIENCE_S
        while not children.read_text():  # it has found the pipe full, and sleeps until it tries again
            assert process.poll() is None
            assert time.monotonic() < late
        with os.fdopen(out, "rb") as reader:
            assert set(reader.read(full)) == {ord("x")}
            process.communicate(timeout=PATIENCE_S)
            assert b"vtorque-token-begin\n" in reader.read()


def started(process: subprocess.Popen[bytes]) -> None:
    """Wait for the word by which the job says that it runs."""
    assert process.stdout
    assert process.stdout.readline() == b"up\n"


def to_session(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to everything in the session of the job's shell, as Torque does."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == process.pid:
                    os.kill(int(name), number)
            except ProcessLookupError:
                continue


def test_term_reaches_the_guest_and_its_status_comes_back(job_place: JobPlace) -> None:
    """The login shell dies of TERM, as on a bare node; the script's last words arrive."""
    process = job_place.start_batch(b"trap 'echo last words; exit 5' TERM\necho up; while :; do sleep 0.1; done\n")
    started(process)
    to_session(process, signal.SIGTERM)
    _out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGTERM
    assert b"vtorque" not in err


def test_shell_that_bears_term_ends_with_its_own_status(job_place: JobPlace) -> None:
    shell = job_place.root / "bearing"
    shell.write_text("#!/bin/sh\ntrap 'echo caught; exit 9' TERM\necho up\nwhile :; do sleep 0.1; done\n")
    shell.chmod(0o755)
    process = job_place.start_batch(b"", user_shell=str(shell))
    started(process)
    to_session(process, signal.SIGTERM)
    out, _err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (9, b"caught\n")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP, signal.SIGURG, signal.SIGRTMIN + 3])
def test_any_signal_is_passed_on(job_place: JobPlace, number: int) -> None:
    shell = job_place.root / "bearing"
    shell.write_text(f"#!/bin/bash\ntrap 'echo caught; exit 9' {int(number)}\necho up\nwhile :; do sleep 0.1; done\n")
    shell.chmod(0o755)
    process = job_place.start_batch(b"", user_shell=str(shell))
    started(process)
    to_session(process, number)
    out, _err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (9, b"caught\n")


@pytest.mark.parametrize("silent", [False, True])
def test_shell_of_a_returned_job_prints_all_of_it_once_whatever_was_there(job_place: JobPlace, silent: bool) -> None:
    """The job began in another start, whose shell is gone; its file has come with it.

    A guest whose files by NFS are out of reach gives no session at first.
    """
    first = job_place.start_batch(b"echo one; until [ -e go ]; do sleep 0.1; done; echo two; exit 3\n", detached=True)
    assert first.stdout
    assert first.stdout.readline() == b"one\n"
    first.kill()
    first.wait()
    if silent:
        tried, program = job_place.root / "home/tried", job_place.far_end.rename(job_place.root / "run.program")
        job_place.far_end.write_text(f'#!/bin/sh\n[ -e {tried} ] && exec {program} "$@"\ntouch {tried}\n')
        job_place.far_end.chmod(0o755)
    file = job_place.root / "out"
    file.write_text("one\nwhat came after the checkpoint\n")
    with file.open("ab") as out:
        again = job_place.start(
            ready=lambda shell: job_place.make_ready(shell, detached=True, returned=True),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.PIPE,
        )
        job_place.give("go")
        assert again.communicate(bytes(job_place.write_script(b"")) + b"\n", timeout=PATIENCE_S)[1] == b""
    assert (again.returncode, file.read_text()) == (3, "one\ntwo\n")


@pytest.mark.parametrize(("number", "wish"), [(CHECKPOINT, shell_message.CHECKPOINT), (PARK, shell_message.PARK)])
def test_signal_for_a_checkpoint_rings_and_is_not_passed_on(job_place: JobPlace, number: int, wish: bytes) -> None:
    bell: list[shell_message.NotificationFifo] = []

    def ready(shell: ProcessId) -> None:
        job_place.make_ready(shell, detached=True)
        shell_message.offer(job_place.directory, job_place.uid)
        bell.append(shell_message.NotificationFifo(job_place.directory))

    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = job_place.start(ready=ready, **pipes)
    assert process.stdin
    assert process.stdout
    script = b"echo up; until [ -e go ]; do sleep 0.1; done; echo ended\n"
    process.stdin.write(bytes(job_place.write_script(script)) + b"\n")
    process.stdin.close()
    process.stdin = None
    assert process.stdout.readline() == b"up\n"
    os.kill(process.pid, number)
    rung = b""
    while wish not in rung:
        assert select.select(bell[0].filenos(), [], [], PATIENCE_S)[0]
        rung += bell[0].read_all()
    job_place.give("go")
    assert process.communicate(timeout=PATIENCE_S)[0] == b"ended\n"
    assert process.returncode == 0


def test_suspend_and_resume(job_place: JobPlace) -> None:
    process = job_place.start_batch(b"echo $$; while [ ! -e go ]; do sleep 0.1; done; rm go; echo resumed\n")
    assert process.stdout
    script = int(process.stdout.readline())
    to_session(process, signal.SIGTSTP)
    job_place.wait_until(lambda: state(script) == "T")
    to_session(process, signal.SIGCONT)
    job_place.give("go")
    assert process.communicate(timeout=PATIENCE_S)[0] == b"resumed\n"
    assert process.returncode == 0


def state(pid: int) -> str:
    """The state of a process, or "" when it is gone (the two namespaces share process ids)."""
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_job_dies_with_its_shell(job_place: JobPlace) -> None:
    """A KILL cannot be passed on: the end of the connection is the word, and no ssh stays behind."""
    process = job_place.start_batch(b"(trap '' TERM HUP; sleep 1000) & echo $$; sleep 1000\n")
    assert process.stdout
    script = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    job_place.wait_until(
        lambda: (
            state(script) == ""
            and not job_place.processes(b"sleep\x001000")
            and not job_place.processes(b"/usr/bin/ssh")
        )
    )


def test_broken_connection_is_told_apart_from_a_status(job_place: JobPlace) -> None:
    process = job_place.start_batch(b"echo up; sleep 1000\n")
    started(process)
    for pid in job_place.processes(b"/usr/bin/ssh"):
        os.kill(pid, signal.SIGKILL)
    _out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 69
    assert b"vtorque: the connection to guest v1-1 (127.0.0.1) was lost: the job had begun there" in err
    job_place.wait_until(lambda: not job_place.processes(b"sleep\x001000"))


LOST = (
    b"vtorque: guest v1-1 on node1 was lost: it crashed\n"
    b"  the last lines of its console: one | Kernel panic?[2J\n"
    b"  more is in /var/lib/vtorque/records/4711.head.1: vtorque.log, and when the job has ended v1-1.console.log\n"
)


def test_a_lost_guest_ends_the_job_at_once_with_the_reason(job_place: JobPlace) -> None:
    """Its connection would stay open: here the guest's sshd even goes on."""
    process = job_place.start_batch(b"echo words >&2; echo up; sleep 1000\n")
    started(process)
    assert process.stderr
    assert process.stderr.readline() == b"words\n"
    job_place.lose()
    assert process.communicate(timeout=PATIENCE_S) == (b"", LOST)
    assert process.returncode == 69
    job_place.wait_until(lambda: not job_place.processes(b"/usr/bin/ssh"))


def test_connection_that_breaks_before_the_word_comes_is_told_with_it(job_place: JobPlace) -> None:
    process = job_place.start_batch(b"echo up; sleep 1000\n")
    started(process)
    job_place.lose(heard=False)
    for pid in job_place.processes(b"/usr/bin/ssh"):
        os.kill(pid, signal.SIGKILL)
    _out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (69, LOST)


def test_touched_record_alone_ends_nothing(job_place: JobPlace) -> None:
    process = job_place.start_batch(b"echo up; until [ -e seen ]; do sleep 0.1; done; rm seen; echo last\n")
    started(process)
    os.utime(job_place.directory / "ready.json")
    job_place.give("seen")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, b"last\n", b"")


def test_guest_that_is_lost_before_the_job_began_runs_nothing(job_place: JobPlace) -> None:
    def ready(shell: ProcessId) -> None:
        job_place.make_ready(shell)
        job_place.lose()

    refused(run_with(job_place, ready), b"nothing was run: guest v1-1 on node1 was lost: it crashed", b"Kernel panic")


def refused(answer: t.Any, *arguments: bytes) -> None:
    """Nothing ran, and one clear message says why."""
    assert answer.status == 1
    assert answer.out == b""
    assert answer.err.startswith(b"vtorque: ")
    assert len(answer.err.splitlines()) <= 3
    for word in arguments:
        assert word in answer.err


def test_guest_that_is_not_there(job_place: JobPlace) -> None:
    guest = job_place.record(ProcessId.of(1)).guests[0]
    answer = job_place.batch(b"echo RAN\n", guests=(dataclasses.replace(guest, port=1),))
    refused(answer, b"nothing was run", b"v1-1", b"Connection refused")


def test_guest_with_another_host_key(job_place: JobPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_place, "host_key", "ssh-ed25519 " + "A" * 68)
    refused(job_place.batch(b"echo RAN\n"), b"nothing was run", b"v1-1")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"boot_id": "0"}, b"another boot"),
        ({"user": "bob"}, b"bob"),
        ({"job_id": "4712.head"}, b"4712.head"),
        ({"shell": ProcessId(1, 1)}, b"1.1"),
        ({"guests": ()}, b"rank 0"),
    ],
)
def test_record_that_is_not_for_this_start(job_place: JobPlace, changes: dict[str, t.Any], word: bytes) -> None:
    refused(job_place.batch(b"echo RAN\n", **changes), b"nothing was run", word)


def run_with(job_place: JobPlace, ready: t.Callable[[ProcessId], None] | None, **how: t.Any) -> t.Any:
    """Start the shell with what `ready` leaves for it."""
    path = job_place.write_script(b"echo RAN\n")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = job_place.start(ready=ready, **pipes, **how)
    out, err = process.communicate(bytes(path) + b"\n", timeout=PATIENCE_S)
    return subprocess.types.SimpleNamespace(status=process.returncode, out=out, err=err)


def test_without_a_record_nothing_runs(job_place: JobPlace) -> None:
    refused(run_with(job_place, None), b"nothing was run", b"no virtual machine was made ready", JOB_ID.encode())


def test_record_of_another_process_is_not_found(job_place: JobPlace) -> None:
    """A later process of the same number, or a start that was given up."""
    ready = run_with(job_place, lambda shell: job_place.make_ready(ProcessId(shell.pid, shell.start_ticks - 1)))
    refused(ready, b"nothing was run", b"no virtual machine")


def test_started_by_hand(job_place: JobPlace) -> None:
    refused(run_with(job_place, None, extra={"PBS_JOBID": ""}), b"not by hand", b"vsub")


@pytest.mark.parametrize("change", ["mode", "owner"])
def test_record_that_another_could_have_written(job_place: JobPlace, change: str) -> None:
    def ready(shell: ProcessId) -> None:
        job_place.make_ready(shell)
        path = job_place.directory / "ready.json"
        if change == "mode":
            path.chmod(0o666)
        else:
            os.chown(path, job_place.uid, 0)

    refused(run_with(job_place, ready), b"not believed")


def test_refusal_is_printed_and_nothing_runs(job_place: JobPlace) -> None:
    def refuse(shell: ProcessId) -> None:
        job_place.make_ready(shell)
        word = RefusalRecord(JOB_ID, 1, "user", "img=debain12", "no such image in the pool\n\x1b[2J", "did you mean x?",
                             ("node01 is offline", "line\ttwo"))  # fmt: skip
        files_module.write_json(job_place.directory / "refusal.json", word, reader_uid=job_place.uid)

    answer = run_with(job_place, refuse)
    (job_place.directory / "refusal.json").unlink()
    text = b"vtorque: this job did not run: img=debain12: no such image in the pool??[2J\n  did you mean x?\n"
    assert (answer.status, answer.out, answer.err) == (1, b"", text + b"  node01 is offline\n  line?two\n")


def test_record_round_trip(job_place: JobPlace) -> None:
    record = job_place.record(ProcessId.of(os.getpid()))
    assert records.ReadyRecord.from_dict(json.loads(json.dumps(dataclasses.asdict(record)))) == record
