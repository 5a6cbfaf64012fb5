# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node and a guest for the job's shell, without a virtual machine: two mount namespaces and a private sshd.

Both have a passwd of their own with the user alice, and a /run of their own; nothing of the machine is changed.
"""

from __future__ import annotations

import compileall
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import typing as t

import inotify_simple
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout, login_fifos, shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import (
    LostRecord,
    ReadyGuest,
    ReadyRecord,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files as files_module
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

from .hook_site import Site

PATIENCE_S = 120
"""Generous: a machine may be busy, and no test measures time."""
COLLECTION = templates.COLLECTION_DIR.parent
JOB_ID = "4711.head"
FIRST_UID, PLACES, PORTS_TRIED = 100_000, 64, 10
_numbers = itertools.count()
BEGIN = """
import json, pathlib, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages as guestspec
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import records
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import early_ssh as early_connection
record, directory, uid = json.load(sys.stdin)
owner = guestspec.Owner(user="alice", uid=uid, gid=uid, group="alice", home="/", shell="/bin/sh")
early_connection.begin(records.ReadyRecord.from_dict(record), pathlib.Path(directory), owner)
"""
TOOLS = ("cat", "chmod", "dd", "env", "mkfifo", "mktemp", "rm", "setsid", "sleep", "wc")
"""What the far end uses; in a busybox guest each is busybox."""


class Namespace:
    """A mount namespace with its own passwd and /run, kept by one process."""

    def __init__(
        self, place: pathlib.Path, uid: int, shell: str, *, busybox: bool = False, program: str = "exec sleep 3600"
    ):
        users = pathlib.Path("/etc/passwd").read_text() + f"alice:*:{uid}:{uid}:Alice:{place}/home:{shell}\n"
        groups = pathlib.Path("/etc/group").read_text() + f"alice:*:{uid}:\n"
        with tempfile.TemporaryDirectory(dir=place) as files:
            (pathlib.Path(files) / "passwd").write_text(users)
            (pathlib.Path(files) / "group").write_text(groups)
            steps = [
                "set -e",
                f"cp {files}/passwd {files}/group {place}; chmod 644 {place}/passwd {place}/group",
                f"mount --bind {place}/passwd /etc/passwd; mount --bind {place}/group /etc/group",
                "mount -t tmpfs -o mode=755 tmpfs /run; mkdir -m 755 /run/sshd",
            ]
            if busybox:
                steps += [f"mount --bind /bin/busybox $(command -v {tool})" for tool in TOOLS]
                steps += ["mount --bind /bin/busybox $(readlink -f /bin/sh)"]
            script = "\n".join([*steps, "echo up", program])
            self.process = subprocess.Popen(
                # a runner that forks for each test ends without tidying up
                ["setpriv", "--pdeathsig", "KILL", "unshare", "-m", "--propagation", "private", "bash", "-c", script],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            assert self.process.stdout
            assert self.process.stdout.readline() == "up\n"
        self.run_dir = pathlib.Path(f"/proc/{self.process.pid}/root/run/vtorque")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


@dataclasses.dataclass
class Answer:
    """How a job ended; `status` is negative for a signal."""

    status: int
    out: bytes
    err: bytes


def take_away(directory: pathlib.Path) -> None:
    """A directory from which others may still take something, or into which they leave their last."""
    end = time.monotonic() + PATIENCE_S
    while directory.exists():
        assert time.monotonic() < end, sorted(directory.rglob("*"))
        shutil.rmtree(directory, ignore_errors=True)


def install(prefix: pathlib.Path) -> pathlib.Path:
    """Install the job's shell, and what it imports.

    Returns:
        Its program.
    """
    python = pathlib.Path(sys.base_prefix) / "bin/python3"
    subprocess.run([python, "-m", "venv", "--without-pip", prefix / "venv"], check=True, timeout=120)
    (packages,) = (prefix / "venv/lib").glob("python3*/site-packages")
    for part in ("plugins/module_utils", "plugins/plugin_utils"):
        target = packages / "ansible_collections/mikelangelo/vtorque" / part
        shutil.copytree(COLLECTION / part, target, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(inotify_simple.__file__, packages)
    (prefix / "bin").mkdir()
    program = prefix / "bin/vtorque-shell"
    program.write_text(templates.render("launchers/vtorque-shell.sh.j2", site_dir=None, prefix=str(prefix)))
    program.chmod(0o755)
    return program


class JobPlace:
    """A node on which alice's job starts, and its guest.

    Attributes:
        early: root begins the shell's connection.
    """

    def __init__(
        self,
        root: pathlib.Path,
        program: pathlib.Path,
        stack: contextlib.ExitStack,
        shell: str,
        *,
        busybox: bool,
        early: bool = False,
    ):
        self.root = root
        self.program = program
        self.prefix = program.parents[1]
        self.early = early
        self.stack = stack
        self.shell = shell
        self.uid = FIRST_UID + os.getpid() * PLACES + next(_numbers) % PLACES
        """Several of these tests may run at once, each with a user of its own."""
        root.chmod(0o755)
        for name in ("home", "jobs", "x11"):
            (root / name).mkdir()
            os.chown(root / name, self.uid, self.uid)
        self.far_end = root / "run"
        self.of_the_guest("run.sh", self.far_end)
        self._keys()
        stack.callback(self._no_places)
        self._guest(busybox=busybox)
        self.node = Namespace(root, self.uid, shell)
        stack.callback(self.node.close)
        self.run_dir = self.node.run_dir
        self.directory = self.run_dir / "jobs" / layout.job_key(JOB_ID, 1)

    def _guest(self, *, busybox: bool) -> None:
        """A guest's sshd, on a port that is free; one may be taken between our look and sshd's."""
        for _attempt in range(PORTS_TRIED):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            self._sshd_config()
            sshd = f"exec /usr/sbin/sshd -D -e -f {self.root}/sshd_config"
            self.guest = Namespace(self.root, self.uid, self.shell, busybox=busybox, program=sshd)
            self.stack.callback(self.guest.close)
            assert self.guest.process.stderr
            output = self.guest.process.stderr.readline()
            if "listening" in output:
                return
            self.guest.close()
        raise AssertionError(output)

    def _no_places(self) -> None:
        """What run.sh made for sessions that nobody ended: in a guest it goes with the guest."""
        for place in pathlib.Path("/tmp").glob("vtorque.??????"):
            with contextlib.suppress(FileNotFoundError):  # another's, at the end of their job
                if place.stat().st_uid == self.uid:
                    take_away(place)

    def of_the_guest(self, name: str, path: pathlib.Path) -> None:
        """A program of the guest's side, with this place for the guest's own."""
        text = (templates.COLLECTION_DIR / "guest" / name).read_text()
        assert "/run/vtorque/x11/" in text
        text = text.replace("/run/vtorque/x11/", f"{self.root}/x11/")
        path.write_text(text.replace("/tmp/vtorque.job", f"{self.root}/home/.vtorque.job"))
        path.chmod(0o755)

    def set_in_program(self, module: str, message: str, others: str) -> None:
        """Put other words into the installed program, as where they say how long it waits."""
        self.prefix = self.root / "opt"  # that of all tests stays as it is
        self.program = install(self.prefix)
        (program,) = (self.prefix / "venv/lib").glob(f"python3*/site-packages/**/{module}")
        text = program.read_text()
        assert text.count(message) == 1
        program.write_text(text.replace(message, others))

    def _keys(self) -> None:
        for name in ("host", "job"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.root / name)]
            subprocess.run(command, check=True, timeout=60)
        self.job_key = (self.root / "job").read_text()
        (self.root / "job").unlink()
        self.host_key = " ".join((self.root / "host.pub").read_text().split()[:2])

    def _sshd_config(self) -> None:
        (self.root / "authorized").write_text((self.root / "job.pub").read_text())
        (self.root / "authorized").chmod(0o644)
        (self.root / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {self.root}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.root}/authorized\nPasswordAuthentication no\nUseDNS no\nStrictModes no\n"
            f"X11Forwarding yes\nX11UseLocalhost yes\nXAuthLocation {self.root}/xauth\n"
        )

    def record(self, shell: ProcessId, /, **changes: t.Any) -> ReadyRecord:
        guest = ReadyGuest(0, "v1-1", "node1", "127.0.0.1", vcpus=3, port=self.port)
        record = ReadyRecord(JOB_ID, 1, "alice", shell, process_id.boot_id(), (guest,), "", str(self.far_end))
        return dataclasses.replace(record, **changes)

    def make_ready(self, shell: ProcessId, /, **changes: t.Any) -> None:
        """What root's prologue leaves for the process that becomes the shell."""
        files_module.make_directory(self.directory)
        files_module.write(self.directory / "job_key", self.job_key, reader_uid=self.uid)
        files_module.write(self.directory / "known_hosts", f"v1-1 {self.host_key}\n", reader_uid=self.uid)
        record = self.record(shell, **changes)
        if self.early and record.guests:
            self.begin(record)
        files_module.write_json(self.directory / "ready.json", record, reader_uid=self.uid)
        shell_link.point(shell, self.directory, self.run_dir)

    def on_node(self, program: str, given: t.Any) -> None:
        """Run a program of Python as the node's root, with JSON on its standard input."""
        python = ["nsenter", f"--mount=/proc/{self.node.process.pid}/ns/mnt", self.prefix / "venv/bin/python", "-I"]
        # what it starts must not have these streams: else this waits for its end
        done = subprocess.run(
            [*python, "-c", program], input=json.dumps(given), capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr

    def begin(self, record: ReadyRecord) -> None:
        """Let root begin the shell's connection, as the prologue does."""
        directory = layout.RUN_DIR / "jobs" / self.directory.name
        self.on_node(BEGIN, [dataclasses.asdict(record), str(directory), self.uid])
        self.stack.callback(login_fifos.kill, self.directory / login_fifos.SAID)

    def lose(self, *, heard: bool = True) -> None:
        """What the worker on the node does when the guest has ended.

        Args:
            heard: the job's shell is told.
        """
        lost = LostRecord("v1-1", "node1", "it crashed", "one | Kernel panic\x1b[2J", 5.0)
        files_module.write_json(self.directory / "lost.json", lost, reader_uid=self.uid)
        if heard:
            os.utime(self.directory / "ready.json")

    def give(self, name: str) -> None:
        """Put an empty file of the user's into their home, in one step: a script that waits for it may take it away."""
        made = self.root / f".{name}"
        made.touch()
        os.chown(made, self.uid, self.uid)
        made.rename(self.root / "home" / name)

    def write_script(self, content: bytes) -> pathlib.Path:
        path = self.root / "jobs" / f"{JOB_ID}.SC"
        path.write_bytes(content)
        os.chown(path, self.uid, self.uid)
        path.chmod(0o700)
        return path

    def variables(self, extra: t.Mapping[str, str] | None = None) -> list[str]:
        """The environment as Torque gives it to a job (recorded on TORQUE 6.1.3, shortened)."""
        known = {
            "HOME": f"{self.root}/home", "LOGNAME": "alice", "USER": "alice", "SHELL": str(self.program),
            "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PBS_JOBID": JOB_ID,
            "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NP": "9", "PBS_NUM_NODES": "9", "PBS_NUM_PPN": "9",
            "PBS_GPUFILE": "/var/spool/torque/aux//4711.headgpu", "PBS_O_WORKDIR": f"{self.root}/home",
            "TMPDIR": "/nope",
        }  # fmt: skip
        return [f"{name}={value}" for name, value in {**known, **(extra or {})}.items()]

    def start(
        self,
        arguments: t.Sequence[str] = (),
        *,
        extra: t.Mapping[str, str] | None = None,
        ready: t.Callable[[ProcessId], None] | None = None,
        **streams: t.Any,
    ) -> subprocess.Popen[bytes]:
        """Start the job's shell as MOM does: in a session of its own, as the user, in their home."""
        gate, opened = os.pipe()
        user = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--inh-caps=-all"]
        command = ["nsenter", f"--mount=/proc/{self.node.process.pid}/ns/mnt", f"--wd={self.root}/home", *user]
        command += ["env", "-i", *self.variables(extra), str(self.program), *arguments]
        process = subprocess.Popen(
            ["bash", "-c", f'read go <&{gate} && exec {gate}<&- && exec "$@"', "bash", *command],
            start_new_session=True, pass_fds=[gate], cwd="/", umask=0o022, **streams,
        )  # fmt: skip
        os.close(gate)
        self.stack.callback(process.kill)  # with it goes everything that it left in the guest
        if ready is not None:
            ready(ProcessId.of(process.pid))
        os.write(opened, b"go\n")
        os.close(opened)
        return process

    def start_batch(
        self, script: bytes, arguments: bytes = b"", *, extra: t.Mapping[str, str] | None = None, **changes: t.Any
    ) -> subprocess.Popen[bytes]:
        """Start a batch job whose guest is ready; its line is on standard input, and the end of it."""
        line = bytes(self.write_script(script)) + (b" " + arguments if arguments else b"") + b"\n"
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = self.start(extra=extra, ready=lambda shell: self.make_ready(shell, **changes), **pipes)
        assert process.stdin
        # one that refuses may be gone before it has heard what it was to run
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line)
            process.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdin = None
        return process

    def batch(self, script: bytes, arguments: bytes = b"", **options: t.Any) -> Answer:
        """A batch job from its start to its end."""
        process = self.start_batch(script, arguments, **options)
        try:
            out, err = process.communicate(timeout=300)
        finally:
            process.kill()
        return Answer(process.returncode, out, err)

    def wait_until(self, true: t.Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end, f"still there:\n{self.seen()}"
            select.select([], [], [], 0.05)

    def seen(self) -> str:
        """Every process, for the words of a failure."""
        columns = "pid,ppid,pgid,sid,user,stat,wchan:20,args"
        return subprocess.run(["ps", "-eo", columns], capture_output=True, text=True, timeout=60, check=True).stdout

    def processes(self, arguments: bytes) -> list[int]:
        """Processes of the user whose command line holds these words."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as stream:
                    if arguments in stream.read() and os.stat(f"/proc/{name}").st_uid == self.uid:
                        found.append(int(name))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    def process(self, program: str) -> int:
        """The one process of the user that is this program.

        Its path stands in the command lines of those that come before it, too, and who began it goes on before the
        kernel shows any.
        """
        name = pathlib.Path(program).name

        def found() -> list[int]:
            there = self.processes(program.encode())
            return [one for one in there if pathlib.Path(f"/proc/{one}/comm").read_text() == f"{name}\n"]

        self.wait_until(lambda: len(found()) == 1)
        return found()[0]


@pytest.fixture(scope="session")
def installed_program() -> t.Iterator[pathlib.Path]:
    """The job's shell as the role installs it, compiled: for all tests, of which none may write there."""
    with tempfile.TemporaryDirectory(prefix="vtorque-test-", dir="/tmp") as place:
        prefix = pathlib.Path(place) / "opt"
        program = install(prefix)
        pathlib.Path(place).chmod(0o755)
        assert compileall.compile_dir(prefix / "venv/lib", quiet=1)
        yield program


def _job_place(program: pathlib.Path, shell: str, *, busybox: bool, early: bool) -> t.Iterator[JobPlace]:
    with contextlib.ExitStack() as stack:
        root = pathlib.Path(tempfile.mkdtemp(prefix="vtorque-test-", dir="/tmp"))
        stack.callback(take_away, root)
        yield JobPlace(root, program, stack, shell, busybox=busybox, early=early)


@pytest.fixture(params=["bash", "busybox"])
def job_place(request: pytest.FixtureRequest, installed_program: pathlib.Path) -> t.Iterator[JobPlace]:
    """A guest like Debian (dash, coreutils, user's shell bash), and one that is all busybox (user's shell sh).

    To the second leads a connection that the prologue has begun.
    """
    busybox = request.param == "busybox"
    yield from _job_place(installed_program, "/bin/sh" if busybox else "/bin/bash", busybox=busybox, early=busybox)


@pytest.fixture
def early_place(installed_program: pathlib.Path) -> t.Iterator[JobPlace]:
    """A guest like Debian, to which the prologue has begun the connection."""
    yield from _job_place(installed_program, "/bin/bash", busybox=False, early=True)


@pytest.fixture
def site() -> t.Iterator[Site]:
    """A node on which the hooks' program runs."""
    with tempfile.TemporaryDirectory(prefix="vtorque-hook-") as place:
        yield Site(pathlib.Path(place))
