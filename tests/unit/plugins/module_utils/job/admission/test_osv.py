# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job in OSv: its one command, what it cannot have, and how it runs between an API and a console."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
import socket
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import ImageFacts, Offers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.submission import Site, prepare
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub import directives
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub.arguments import Arguments
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub.front import QsubJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub.options import Options
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request import osv_script
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.demand import NodeSize
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import RequestErrors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell import osv_session
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.lost_guest import GuestLost, LostWatch
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.session import ConnectionLost, End
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.osv_rest import Rest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout, records, shell_message
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from hypothesis import given
from hypothesis import strategies as st

from ...osv_server import OsvServer

if t.TYPE_CHECKING:
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import ReadyRecord


@pytest.mark.parametrize(
    ("script", "arguments", "parts"),
    [
        (b"/app.so\n", b"", ["/app.so"]),
        (b"#!/bin/sh\n#PBS -N x\n\n  # more\n/app.so 'b  c' \"d\\\"e\"\n", b"", ["/app.so", "b  c", 'd"e']),
        (b"/app.so f\\ g\n", b"", ["/app.so", "f g"]),
        (b"/app.so a \\\n   b\\\r\n c\n", b"", ["/app.so", "a", "b", "c"]),
        (b"/app.so $PBS_JOBID --in=$WHERE\n", b" 'x y' z", ["/app.so", "$PBS_JOBID", "--in=$WHERE", "x y", "z"]),
        (b"/app.so ';' \"a|b\" \\&\n", b"", ["/app.so", ";", "a|b", "&"]),
        ("/app.so ü\n".encode(), b"", ["/app.so", "ü"]),
    ],
)  # fmt: skip
def test_one_command_of_a_script(script: bytes, arguments: bytes, parts: list[str]) -> None:
    assert list(osv_script.read(script, arguments)) == parts


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (b"", "no commands"),
        (b"# nothing\n", "no commands"),
        (b"/a.so\n/b.so\n", "2 commands"),
        (b"/a.so; /b.so\n", "; is for a shell"),
        (b"/a.so | wc >x\n", "> | is for a shell"),
        (b"/a.so $(date) `date`\n", "is for a shell"),
        (b"/a.so &\n", "& is for a shell"),
        (b"app.so\n", "not the path of a program"),
        (b"A=1 /app.so\n", "not the path of a program"),
        (b"/app.so 'open\n", "no closing quotation"),
        (b"/app.so ${HOME}\n", "a \\$ begins the name"),
        (b"/app.so $HOME/x\n", "a \\$ begins the name"),
        (b"/app.so \xff\n", "not UTF-8"),
        (b"/app.so a\0b\n", "a\\\\x00b"),
    ],
)
def test_osv_script_that_needs_a_shell_is_refused(script: bytes, why: str) -> None:
    with pytest.raises(UserFault, match=why):
        osv_script.read(script)


@given(st.binary())
def test_any_script_gives_words_or_a_fault_of_the_users(script: bytes) -> None:
    with contextlib.suppress(UserFault):
        assert osv_script.read(b"/app.so " + script)[0].startswith("/app.so")


OFFERS = Offers((ImageFacts("osv@1", "osv"), ImageFacts("debian@1", "debian")))
POLICY = Policy(img_default="osv", vcpus_default=2, ram_default=512)


def faults_of(
    arguments: list[str], script: bytes = b"/app.so\n", policy: Policy = POLICY, content: bytes = b"#!/bin/sh\n"
) -> dict[str, str]:
    site = Site(OFFERS, {}, lambda _queue: [NodeSize("n1", 16, 65536)], look=lambda word, _runs: (word, content))
    asked = QsubJob(Options(Arguments.read(arguments), directives.read(script, "job.sh")))
    try:
        prepare(asked, policy, site, "/home/alice")
    except RequestErrors as errors:
        return {fault.key: fault.message for fault in errors.faults}
    return {}


@pytest.mark.parametrize(
    ("arguments", "key", "why"),
    [
        (["-vm", "vms_per_node=2"], "vms_per_node", "one process in one guest"),
        (["-l", "nodes=2"], "-l nodes", "ask by -l nodes=1:ppn=N"),
        (["-l", "nodes=2", "-vm", "nodes=1"], "-l nodes", "one process in one guest"),
        (["-vm", "disk=/home/alice/own.img"], "disk", "nothing in OSv would mount it"),
        (["-vm", "vm_prologue=/home/alice/p"], "vm_prologue", "no shell"),
        (["-vm", "vm_epilogue=/home/alice/p"], "vm_epilogue", "no shell"),
        (["-S", "/bin/bash"], "-S", "no shell"),
        (["-d", "/home/alice"], "-d", "starts in /"),
        (["-I"], "-I", "no terminal"),
    ],
)
def test_osv_request_with_unsupported_keys_names_them(arguments: list[str], key: str, why: str) -> None:
    assert why in faults_of(arguments)[key]
    assert not faults_of(["-vm", "img=debian", *arguments]).get(key)


def test_additions_are_not_for_osv() -> None:
    faults = faults_of(["-vm", "metadata=/home/alice/m"], content=b"runcmd: [date]\n")
    assert "what the program needs is in the image" in faults["metadata"]


def test_script_is_read_at_submission_and_by_nobody_else() -> None:
    assert faults_of([]) == {}
    assert "2 commands" in faults_of([], b"#!/bin/sh\n/a.so\n/b.so\n")["job.sh"]
    assert faults_of(["-vm", "img=debian"], b"cd x; make | tee y\n") == {}


class Guest:
    """A guest of OSv: its API, its console, and the directory in which the job's shell finds it."""

    def __init__(self, directory: pathlib.Path, server: OsvServer) -> None:
        self.directory, self.server = directory, server
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(directory / "socket"))
        self.listening.listen()
        (directory / layout.CONSOLE).symlink_to(directory / "socket")
        (directory / "ready.json").touch()
        self.printed = b""
        self.says: t.Callable[[str, str, socket.socket], None] = lambda _token, _thread, _console: None
        server.started = self.started

    def started(self, command: str, thread: str) -> None:
        if "/usr/lib/vtorque-launcher.so" in self.server.missing:
            self.arguments = command.replace('"', "").split(" ")
            with self.listening.accept()[0] as console:
                self.says("", thread, console)
            return
        launcher, verb, token, *arguments = command.replace('"', "").split(" ")
        assert (launcher, verb) == ("/usr/lib/vtorque-launcher.so", "run")
        self.arguments = arguments
        console = self.listening.accept()[0]
        with console:
            self.says(token, thread, console)

    def run(self, variables: t.Mapping[bytes, bytes] | None = None) -> End:
        guest = records.ReadyGuest(0, "vcn1-1", "cn1", "127.0.0.1", kind="osv")
        record = t.cast("ReadyRecord", type("Record", (), {"guests": (guest,)}))
        with LostWatch(self.directory) as watch:
            one = osv_session.Run(
                record, self.directory, watch, rest=Rest("127.0.0.1", port=self.server.port), write=self.write,
                ask_s=0.05, patience_s=0.3,
            )  # fmt: skip
            return one.run(["/app.so", "x"], variables or {b"PBS_JOBID": b"1.head"})

    def write(self, _fd: int, data: bytes) -> None:
        self.printed += data


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> t.Iterator[Guest]:
    with OsvServer() as server:
        one = Guest(tmp_path, server)
        yield one
        one.listening.close()
        server.shutdown()


def test_output_and_status_come_from_the_console_alone(guest: Guest) -> None:
    """What others print before is not the job's, and neither is what a program prints of another token."""

    def says(token: str, _thread: str, console: socket.socket) -> None:
        others = f"vtorque-{'0' * 32}-end exit 5"
        output = f"eth0: up\r\nvtorque-{token}-begin\r\none\r\ntwo\r{others}\r\n\r\r\nno end "
        output += f"vtorque-{token}-end exit 37\r\nafter"
        for byte in output.encode():
            console.sendall(bytes([byte]))

    guest.says = says
    assert guest.run({b"PBS_JOBID": b"1.head", b"ODD": b"a&b=%\n"}) == End("exit", "37")
    assert guest.printed == b"one\ntwo\rvtorque-" + b"0" * 32 + b"-end exit 5\n\r\nno end "
    assert guest.server.environ == {"PBS_JOBID": "1.head", "ODD": "a&b=%\n"}
    assert guest.arguments == ["/app.so", "x"]


def test_stop_of_the_shell_rings_and_the_program_goes_on(guest: Guest) -> None:
    """Root asks the batch server then, whether the job is suspended."""
    shell_message.offer(guest.directory, os.getuid())
    bell = shell_message.NotificationFifo(guest.directory)

    def says(token: str, _thread: str, console: socket.socket) -> None:
        os.kill(os.getpid(), signal.SIGTSTP)
        assert select.select(bell.filenos(), [], [], 60)[0]
        console.sendall(f"vtorque-{token}-begin\nvtorque-{token}-end exit 3\n".encode())

    guest.says = says
    assert guest.run() == End("exit", "3")
    bell.close()


def test_program_that_cannot_be_loaded_was_not_run(guest: Guest) -> None:
    guest.says = lambda token, _thread, console: console.sendall(
        f"vtorque-{token}-begin\nvtorque-{token}-end broken /app.so: no such file\n".encode()
    )
    with pytest.raises(VTorqueError, match=r"nothing was run: /app\.so: no such file"):
        guest.run()


@pytest.mark.parametrize("message", ["exit 256", "exit -1", "exit", "exit 1 2", "signal 9", "place /x", "exit \u0663"])
def test_nonsense_of_a_launcher_is_no_status(guest: Guest, message: str) -> None:
    guest.says = lambda token, _thread, console: console.sendall(
        f"vtorque-{token}-begin\nvtorque-{token}-end {message}\n".encode()
    )
    with pytest.raises(ConnectionLost, match="is not known"):
        guest.run()


def test_program_that_is_over_without_a_word_is_no_success(guest: Guest) -> None:
    """The API says so, the console stays silent."""
    done = threading.Event()

    def says(token: str, thread: str, console: socket.socket) -> None:
        console.sendall(f"vtorque-{token}-begin\nsome\n".encode())
        guest.server.threads[thread] = True
        done.wait(60)

    guest.says = says
    with contextlib.ExitStack() as stack:
        stack.callback(done.set)
        with pytest.raises(ConnectionLost, match="must return from main"):
            guest.run()
    assert guest.printed == b"some\n"


def test_guest_that_is_lost_is_told_with_its_reason(guest: Guest) -> None:
    """exit() of the program: the console ends, and the node says what it saw."""

    def says(token: str, _thread: str, console: socket.socket) -> None:
        console.sendall(f"vtorque-{token}-begin\nlast words\n".encode())
        lost = records.LostRecord("vcn1-1", "cn1", "it powered off", "", 1.0)
        files.write_json(guest.directory / "lost.json", lost)
        os.utime(guest.directory / "ready.json")

    guest.says = says
    with pytest.raises(GuestLost, match="it powered off"):
        guest.run()
    assert guest.printed == b"last words\n"


def test_signal_of_the_batch_system_ends_the_job_and_others_do_not(guest: Guest) -> None:
    def says(token: str, _thread: str, console: socket.socket) -> None:
        console.sendall(f"vtorque-{token}-begin\n".encode())
        for number in (signal.SIGURG, signal.SIGCONT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        console.recv(1)

    guest.says = says
    assert guest.run() == End("signal", str(int(signal.SIGTERM)))


def test_guest_without_a_console_or_an_api_runs_nothing(guest: Guest) -> None:
    guest.server.shutdown()
    guest.server.server_close()
    with pytest.raises(VTorqueError, match="nothing was run: POST /env/PBS_JOBID"):
        guest.run()
    (guest.directory / layout.CONSOLE).unlink()
    with pytest.raises(VTorqueError, match="nothing was run: the console of guest vcn1-1"):
        guest.run()


LAUNCHER = "/usr/lib/vtorque-launcher.so"
VERBOSE = r"--rootfs=rofs --verbose --env=A=x\ y /libhttpserver-api.so"


@pytest.mark.parametrize(
    ("printed", "status", "output"),
    [
        ("one\r\nno end program /app.so returned 7\r\n", "7", b"one\nno end "),
        ("one\r\n", "0", b"one\n"),
        ("program /app.so returned -1\r\n[I/30 kernel]: more\r\n", "255", b"[I/30 kernel]: more\n"),
        ("program /usr/mgmt/x.so returned 3\r\n", "0", b"program /usr/mgmt/x.so returned 3\n"),
        (
            "program /app.so returned much\r\nprogram /app.so ret",
            "0",
            b"program /app.so returned much\nprogram /app.so ret",
        ),
    ],
)
def test_kernel_reports_the_status_of_an_image_without_the_launcher(
    guest: Guest, printed: str, status: str, output: bytes
) -> None:
    """OSv's own line (core/app.cc), of another program than ours nothing, of a 0 no line at all."""
    guest.server.missing, guest.server.command_line = (LAUNCHER,), VERBOSE

    def says(_token: str, thread: str, console: socket.socket) -> None:
        for byte in printed.encode():
            console.sendall(bytes([byte]))
        guest.server.threads[thread] = True
        done.wait(60)

    done = threading.Event()
    guest.says = says
    try:
        assert guest.run() == End("exit", status)
    finally:
        done.set()
    assert guest.printed == output
    assert guest.arguments == ["/app.so", "x"]


@pytest.mark.parametrize(
    "line", ["/libhttpserver-api.so", "--rootfs=rofs /a.so --verbose", r"--env=A=x\ --verbose /a.so"]
)
def test_image_without_the_launcher_and_a_kernel_that_is_silent_runs_nothing(guest: Guest, line: str) -> None:
    """A status that nobody reports must not become a 0."""
    guest.server.missing, guest.server.command_line = (LAUNCHER,), line
    with pytest.raises(VTorqueError, match=r"nothing was run: .*Failed to load object: /usr/lib/vtorque-launcher"):
        guest.run()
    assert guest.server.commands == []


def test_program_that_is_missing_in_an_image_without_the_launcher_was_not_run(guest: Guest) -> None:
    guest.server.missing, guest.server.command_line = (LAUNCHER, "/app.so"), VERBOSE
    with pytest.raises(VTorqueError, match=r"nothing was run: .*Failed to load object: /app\.so"):
        guest.run()


def test_console_that_ends_before_the_api_reports_an_end_is_no_success(guest: Guest) -> None:
    """The kernel says nothing of a 0; and a console that is gone would say nothing of a 7."""
    guest.server.missing, guest.server.command_line = (LAUNCHER,), VERBOSE
    guest.says = lambda _token, _thread, console: console.sendall(b"some\n")
    with pytest.raises(ConnectionLost, match="its console ended"):
        guest.run()
    assert guest.printed == b"some\n"


def test_variables_that_osv_cannot_have_are_left_out_and_told() -> None:
    job = {b"PBS_JOBID": b"1", b"EMPTY": b"", b"LD_LIBRARY_PATH": b"/x", b"BASH_FUNC_x%%": b"() {", b"A": b"\xff\n"}
    given_ = osv_session.variables_for(job, "alice")
    assert given_ == {b"PBS_JOBID": b"1", b"A": b"\xff\n", b"USER": b"alice", b"LOGNAME": b"alice"}
    assert osv_session.describe_dropped(job, given_).endswith(": EMPTY LD_LIBRARY_PATH BASH_FUNC_x%%")
    assert osv_session.describe_dropped({b"A": b"1"}, given_) == ""
