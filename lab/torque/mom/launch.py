# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that runs the prologues on the mother superior and then becomes the job.

Batch: this very process becomes the login shell, so `getppid()` in `prologue` is the job shell's pid.
Interactive: it stays as the terminal's relay, and shell and prologue are both its children.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pathlib
import select
import signal
import socket
import struct
import termios
import time
import typing as t

from ..shared import wire, x11
from ..shared.job import Job
from . import cgroups, hooks
from .jobfiles import ERR, OUT, Account, JobFiles

CONTROL = 20
PROLOGUE_FAILED, ABORTED = -14, -2
EXEC_FAILED = 254


@dataclasses.dataclass(frozen=True)
class Launch:
    """What the process needs to know."""

    job: Job
    account: Account
    files: JobFiles
    alarm: float
    sockets: str
    cookie: str
    has_cgroups: bool = False


class Terminal:
    """The user's terminal of `qsub -I`: a pty here, the waiting qsub at the other end of a socket."""

    def __init__(self, plan: Launch) -> None:
        asked = plan.job.interactive or {}
        name = os.path.basename(asked["socket"])  # noqa: PTH119 - only a name, whatever the user wrote
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(f"{wire.interactive_directory(plan.sockets)}/{name}")
        if wire.peer_uid(self.socket) != plan.account.uid:
            raise PermissionError("the waiting qsub is another user's")
        size = json.loads(self._first_line())
        self.term = str(size["term"])
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", int(size["rows"]), int(size["columns"]), 0, 0))
        os.fchown(self.slave, plan.account.uid, plan.account.gid)
        self._from_user = True
        self.session = 0

    def _first_line(self) -> bytes:
        """The terminal's size, and not a byte of what was typed behind it."""
        line = b""
        while not line.endswith(b"\n"):
            byte = self.socket.recv(1)
            if not byte:
                raise ConnectionResetError("the waiting qsub is gone")
            line += byte
        return line

    def relay(self, until: int, seconds: float | None = None) -> bool:
        """Carry bytes both ways until a descriptor (a process's) is ready, or the time is over."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            watched = [until, self.master] + ([self.socket.fileno()] if self._from_user else [])
            left = None if end is None else max(0.0, end - time.monotonic())
            ready, _w, _x = select.select(watched, [], [], left)
            if not ready:
                return False
            if self.master in ready:
                self._out()
            if self.socket.fileno() in ready:
                self._in()
            if until in ready and self.master not in ready:
                return True

    def finish(self) -> None:
        """Hand over what the ended shell still wrote."""
        os.close(self.slave)
        while select.select([self.master], [], [], 0.2)[0] and self._out():
            pass
        self.socket.close()

    def _out(self) -> bool:
        try:
            data = os.read(self.master, 65536)
            self.socket.sendall(data)
        except OSError:
            return False
        return bool(data)

    def _in(self) -> None:
        try:
            data = self.socket.recv(65536)
        except OSError:
            data = b""
        self._from_user = bool(data)
        if data:
            os.write(self.master, data)
        elif self.session:
            hooks.kill_session(self.session, signal.SIGHUP)


def leave_daemon(stored: dict[int, int]) -> None:
    """Keep nothing of the MOM that forked: neither its descriptors, but for those given, nor its signal handlers."""
    signal.set_wakeup_fd(-1)
    for handled in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(handled, signal.SIG_DFL)
    for descriptor, number in stored.items():
        if descriptor != number:  # dup3(2) refuses that
            os.dup2(descriptor, number, inheritable=False)
    first = 3
    for number in sorted(stored.values()):
        os.closerange(first, number)
        first = number + 1
    os.closerange(first, 4096)


def launch(plan: Launch, control: socket.socket) -> t.NoReturn:
    """Be the forked child: run the prologues, tell the MOM, wait for its word, become the job."""
    leave_daemon({control.fileno(): CONTROL})
    try:
        os.setsid()
        os.umask(0o077)
        if plan.has_cgroups:  # before the prologues: root's hooks live in there, too
            cgroups.join(plan.job.id)
        terminal = Terminal(plan) if plan.job.interactive is not None else None
    except (OSError, ValueError, KeyError):
        _tell({"result": ABORTED})
        os._exit(1)
    streams = (terminal.slave, terminal.slave) if terminal else _open_streams(plan)
    result = _prologues(plan, streams, terminal)
    if result:
        _tell({"result": ABORTED if terminal or result == 1 else PROLOGUE_FAILED})
        os._exit(1)
    if not _can_start_in(plan, streams[1]):
        _tell({"result": ABORTED})
        os._exit(1)
    if terminal:
        _interactive(plan, terminal)
    _tell({"result": 0, "session": os.getpid()})
    _wait_for_word()
    _become_shell(plan, streams)


def _start_directory(plan: Launch) -> str:
    return plan.job.variables.get("PBS_O_INITDIR") or plan.account.home


def _can_start_in(plan: Launch, err: int) -> bool:
    """Return whether the user can enter the directory in which the job is to start, before the MOM hears of its start.

    Else the job has exit_status -2 and no output, as after a prologue that says 1 (go_to_init_dir, JOB_EXEC_FAIL2).
    """
    pid = os.fork()
    if pid == 0:
        try:
            plan.account.as_user.become()
            os.chdir(_start_directory(plan))
        except OSError as error:
            os.write(err, f"PBS: chdir to '{_start_directory(plan)[:256]}' failed: {error.strerror}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _tell(message: wire.Message) -> None:
    os.write(CONTROL, json.dumps(message).encode() + b"\n")


def _wait_for_word() -> None:
    if os.read(CONTROL, 1) != b"g":
        os._exit(1)


def _open_streams(plan: Launch) -> tuple[int, int]:
    return (
        plan.files.open_stream(plan.job, OUT, plan.account),
        plan.files.open_stream(plan.job, ERR, plan.account),
    )


def _prologues(plan: Launch, streams: tuple[int, int], terminal: Terminal | None) -> int:
    """prologue, prologue.user, -l prologue=; the first that fails ends it."""
    job, files, account = plan.job, plan.files, plan.account
    base = files.base_environment()
    first, second = socket.socketpair()
    pipes = [os.pipe()[1] for _number in range(3)]
    inherited = {9: first.fileno(), 10: second.fileno(), 11: pipes[0], 13: pipes[1], 16: pipes[2]}
    if terminal is None:
        inherited.update({12: streams[0], 14: streams[1]})
    scripts = [
        (hooks.find(files.mom_priv, "prologue", job), 0, account.as_root, str(files.mom_priv)),
        (hooks.find(files.mom_priv, "prologue.user", job), 0, account.as_user, account.home),
    ]
    if "prologue" in job.resources:
        path = pathlib.Path(job.variables.get("PBS_O_WORKDIR", "/"), job.resources["prologue"])
        scripts.append((path, account.uid, account.as_user, account.home))
    for path, owner, identity, cwd in scripts:
        script = hooks.Script(
            path=path,
            owner=owner,
            arguments=hooks.start_arguments(files.mom_priv, job),
            environment=hooks.environment(base, job, 0, files.home, identity.uid == 0),
            identity=identity,
            cwd=cwd,
            umask=0o077,
            out=streams[0],
            err=streams[1],
            inherited=inherited,
        )
        result = hooks.run(script, plan.alarm, terminal.relay if terminal else None)
        if result:
            return result
    return 0


def job_environment(plan: Launch, term: str = "") -> dict[str, str]:
    """The environment of the job shell (job-environment-pbs.txt of the records)."""
    job, home = plan.job, plan.files.home
    kind = "BATCH" if job.interactive is None else "INTERACTIVE"
    from ..shared import resources

    spec = job.resources["nodes"]
    result = {
        **plan.files.base_environment(),
        **job.variables,
        "HOME": plan.account.home,
        "LOGNAME": plan.account.name,
        "USER": plan.account.name,
        "SHELL": plan.account.shell,
        "ENVIRONMENT": kind,
        "PBS_ENVIRONMENT": f"PBS_{kind}",
        "PBS_JOBNAME": job.name,
        "PBS_JOBID": job.id,
        "PBS_QUEUE": job.queue,
        "PBS_JOBCOOKIE": plan.cookie,
        "PBS_NODENUM": "0",
        "PBS_VNODENUM": "0",
        "PBS_TASKNUM": "1",
        "PBS_MOMPORT": "15003",
        "PBS_NODEFILE": hooks.node_file(home, job),
        "PBS_GPUFILE": hooks.node_file(home, job, "gpu"),
        "PBS_MICFILE": hooks.node_file(home, job, "mic"),
        "PBS_NP": str(sum(len(slots) for _host, slots in job.hosts)),
        "PBS_NUM_NODES": str(resources.leading_number(spec)),
        "PBS_NUM_PPN": str(resources.per_node(spec)),
        "PBS_VERSION": "TORQUE-6.1.3",
        "PBS_WALLTIME": str(resources.parse_time(job.resources["walltime"])),
    }
    if term:
        result["TERM"] = term
    return result


def _become_shell(plan: Launch, streams: tuple[int, int]) -> t.NoReturn:
    """Be the login shell; it reads the command that names the script from a pipe."""
    command = hooks.script_path(plan.files.mom_priv, plan.job)
    if plan.job.arguments:
        command += " " + plan.job.arguments
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(write, command.encode(errors="surrogateescape") + b"\n")
    os.close(write)
    _execute_shell(plan, {0: read, 1: streams[0], 2: streams[1]}, [], "")


def _execute_shell(plan: Launch, descriptors: dict[int, int], arguments: list[str], term: str) -> t.NoReturn:
    shell = plan.account.shell
    hooks.place_descriptors(descriptors)
    try:
        environment = job_environment(plan, term)
        os.umask(0o077 if plan.job.umask is None else plan.job.umask)
        for number in (signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        plan.account.as_user.become()
        os.chdir(_start_directory(plan))
        if plan.job.interactive is not None and plan.job.forward_x11:
            environment.update(_display(plan))
        os.execve(shell, [f"-{os.path.basename(shell)}", *arguments], environment)  # noqa: S606, PTH119
    except OSError as error:
        os.write(2, f"PBS: exec of shell '{shell}' failed: {error.strerror}\n".encode())
        os._exit(EXEC_FAILED)


def _display(plan: Launch) -> dict[str, str]:
    """Whatever `-v` and `-V` say of it: the display that a child of this process connects with the waiting qsub."""
    try:
        display, listeners = x11.offer(plan.job.forward_x11, plan.account.home)
    except (OSError, ValueError):
        os.write(2, b"PBS: X11 forwarding init failed\n")
        return {}
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        hooks.place_descriptors(dict.fromkeys((0, 1, 2), null))
        try:
            x11.serve(listeners, lambda: _waiting_qsub(plan))
        finally:
            os._exit(1)
    for listener in listeners:
        listener.close()
    return {"DISPLAY": display}


def _waiting_qsub(plan: Launch) -> socket.socket:
    """A further connection to it, beside the terminal's."""
    name = os.path.basename((plan.job.interactive or {})["socket"])  # noqa: PTH119
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(f"{wire.interactive_directory(plan.sockets)}/{name}")
    return connection


def _interactive(plan: Launch, terminal: Terminal) -> t.NoReturn:
    """Run the shell on the terminal, carry its bytes, and end as it ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.setsid()
        fcntl.ioctl(terminal.slave, termios.TIOCSCTTY, 0)
        if os.read(read, 1) != b"g":
            os._exit(1)
        command = (plan.job.interactive or {}).get("command")
        arguments = ["-c", str(command)] if command else []
        _execute_shell(plan, dict.fromkeys((0, 1, 2), terminal.slave), arguments, terminal.term)
    os.close(read)
    _tell({"result": 0, "session": pid})
    _wait_for_word()
    os.write(write, b"g")
    terminal.session = pid
    descriptor = os.pidfd_open(pid)
    terminal.relay(descriptor)
    _pid, status = os.waitpid(pid, 0)
    terminal.finish()
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))
