# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's own disk or image, handed to the guest by a process with the user's rights, qemu-nbd, over a socket.

Only qemu's user may use the socket.  Whatever the file is or becomes meanwhile, it is opened with the user's rights;
root and qemu's user never open it, so that it may lie where they may not read.  qemu-nbd holds the locks that QEMU's
programs have among each other.
"""

from __future__ import annotations

import errno
import json
import os
import pathlib
import select
import signal
import stat
import typing as t

from ...errors import ImageFault, NodeFault, SiteFault, UserFault, VTorqueError, error_from_dict
from ...frozen import frozen
from ...system.clock import Deadline
from ...system.process import signals
from ...system.process.environment import USER_TOOL_ENVIRONMENT
from ...text import printable
from ...time_budget import DISK_SERVER_START_S
from ...wire.messages import Owner
from ..pool import user_image
from ..pool.disk_check import OUT_OF_REACH
from ..pool.disk_format import DiskHeader, read_header
from ..system import memory
from ..system.cpus import Cores
from . import qemu_socket
from .serving import Serving

NAME = "vtorque-disk"
"""Begins the first argument of every one of ours; the guest's directory follows (`leftovers.processes`)."""
DATA, IMAGE = "data", "image"
LOG = f"{DATA}.log"
"""In the guest's directory; which guest has a disk, the log tells."""
IMAGE_LOG = f"{IMAGE}.log"
LOGS = rf"({DATA}|{IMAGE})\.log"
"""Which guest has what of the user's, these tell."""
LEAST_BYTES = 16 << 20
_LISTEN_FD, _LOG_FD = 3, 4
_LOCKED = "Failed to get "


def inspect_disk(path: str) -> DiskHeader:
    """What a disk of the user's is; for a process of their own uid.

    Args:
        path: absolute.

    Raises:
        UserFault: it cannot be read and written, or is no disk that stands on nothing else.
        SiteFault: the file is out of reach.
    """
    what = f"disk {printable(path)}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(fd, "rb") as stream:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode):
                raise UserFault(what, "is not a file")
            header = read_header(stream, facts.st_size, what)
    except ImageFault as error:
        raise UserFault(what, error.why, "vmgr disk create makes one") from None
    except OSError as error:
        kind: type[VTorqueError] = SiteFault if error.errno in OUT_OF_REACH else UserFault
        raise kind(what, f"cannot be opened to read and write: {error.strerror}") from error
    if header.virtual_bytes < LEAST_BYTES:
        raise UserFault(what, f"is smaller than {LEAST_BYTES >> 20} MiB")
    return header


def serve(path: str, serving: Serving) -> pathlib.Path:
    """Hand a disk to one guest, as the user; it ends when the guest's qemu lets go of it.

    Args:
        path: of the disk; opened with the user's rights alone.
        serving: whom, and on which terms.

    Returns:
        The socket.

    Raises:
        UserFault: it is no such disk, or is in use.
        SiteFault: the file is out of reach.
        NodeFault: this node has no qemu-nbd.
    """
    work = _Work(DATA, f"disk {printable(path)}", lambda: inspect_disk(path), lambda header: _writing(path, header))
    return _serve(work, serving)[0]


def serve_image(path: str, digest: str, serving: Serving) -> tuple[pathlib.Path, int]:
    """Hand an image to one guest to read, as the user; it ends when the guest's qemu lets go of it.

    Args:
        path: of the image; opened with the user's rights alone.
        digest: what was submitted (`user_image.py`); "": whatever it is.
        serving: whom, and on which terms.

    Returns:
        The socket, and the size that a guest sees.

    Raises:
        UserFault: it is no such image, was changed since it was submitted, or is being written to.
        SiteFault: the file is out of reach.
        NodeFault: this node has no qemu-nbd.
    """
    what = user_image.what_of(path)

    def submitted() -> DiskHeader:
        found = user_image.inspect_image(path, serving.settings.own_images_mib)
        if digest not in ("", found.digest):
            raise UserFault(what, "was changed after the job was submitted", "submit it again")
        return found.header

    work = _Work(IMAGE, what, submitted, lambda header: _reading(path, header))
    return _serve(work, serving)


@frozen
class _Work:
    """What a process of the user's is to serve.

    Attributes:
        name: of its log and socket in the guest's directory.
        what: for messages.
        look: looks at the file, as the user; raises what is wrong.
        options: how qemu-nbd opens it.
    """

    name: str
    what: str
    look: t.Callable[[], DiskHeader]
    options: t.Callable[[DiskHeader], list[str]]


def _writing(path: str, header: DiskHeader) -> list[str]:
    return ["--format", header.format, "--discard", "unmap", path]


def _reading(path: str, header: DiskHeader) -> list[str]:
    """Opened as what it was when we looked, with no file below it, whatever its header says by now."""
    options: dict[str, t.Any] = {"driver": header.format, "file": {"driver": "file", "filename": path}}
    options |= {"backing": None} if header.format == "qcow2" else {}
    return ["--read-only", f"json:{json.dumps(options)}"]


def _serve(work: _Work, serving: Serving) -> tuple[pathlib.Path, int]:
    guest, settings = serving.guest, serving.settings
    what, log = work.what, guest / f"{work.name}.log"
    if not settings.qemu_nbd.exists():
        raise NodeFault(f"{settings.qemu_nbd} on {settings.node_name}", "is not installed", cause="programs")
    place = guest / f"{work.name}.sock"
    until = Deadline.after(serving.deadline.left_s(DISK_SERVER_START_S))
    with qemu_socket.listening(place, serving.qemu) as listening:
        log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            child = _Child(work, serving.owner, serving.cores, settings.qemu_nbd)
            status, size = child.run(f"{NAME}:{guest}/{work.name}", listening.fileno(), log_descriptor, until)
        finally:
            os.close(log_descriptor)
    if status != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        if any(_LOCKED in line for line in lines):
            hint = "one job at a time has a disk" if work.name == DATA else "nothing may write to it while jobs read it"
            raise UserFault(what, "is in use, by another job or by a program of yours", hint)
        reason = next((line for line in lines if line.strip()), f"qemu-nbd ended with status {status}")
        raise UserFault(what, printable(reason[-300:]))
    return place, size


class _Child:
    """A process on its way from root to the user's qemu-nbd, which forks when it is at work."""

    def __init__(self, work: _Work, owner: Owner, cores: Cores, program: pathlib.Path) -> None:
        self.work = work
        self.owner = owner
        self.cores = cores
        self.program = program

    def run(self, name: str, listening: int, log_descriptor: int, deadline: Deadline) -> tuple[int, int]:
        """Until it serves, or has failed; its exit status, and the size of the disk in bytes."""
        hearing, telling = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(name, listening, log_descriptor, parent, telling)
        os.close(telling)
        handle = os.pidfd_open(pid)  # of a child; its pipe and its end are waited for in the same way
        try:
            said_last: dict[str, t.Any] = {}
            while self._waited(hearing, pid, deadline) and (chunk := os.read(hearing, 1 << 14)):
                said_last = json.loads(chunk.splitlines()[-1])
            self._waited(handle, pid, deadline)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if said_last and "bytes" not in said_last:
                raise error_from_dict(said_last)
            return status, said_last.get("bytes", 0)
        finally:
            os.close(hearing)
            os.close(handle)

    def _waited(self, fd: int, pid: int, deadline: Deadline) -> bool:
        if not select.select([fd], [], [], deadline.left_s())[0]:
            os.kill(pid, signal.SIGKILL)
            raise SiteFault(self.work.what, f"{self.owner.user} waits for it in vain", "see to the home server")
        return True

    def _become(self, name: str, listening: int, log_descriptor: int, parent: int, telling: int) -> t.NoReturn:
        """The child's whole life before it is qemu-nbd."""
        try:
            signals.reset_signals()
            if self.cores:
                os.sched_setaffinity(0, self.cores)
            os.setgroups([self.owner.gid, *(group.gid for group in self.owner.groups if group.gid > 0)])
            os.setresgid(self.owner.gid, self.owner.gid, self.owner.gid)
            os.setresuid(self.owner.uid, self.owner.uid, self.owner.uid)
            # a change of ids takes it back, so not before
            if not signals.die_with(parent):
                os._exit(1)
            os.chdir("/")
            header = self.work.look()
            _send_line(telling, {"bytes": header.virtual_bytes})
            # beyond all others first: a number may be one of those that are wanted
            inherited = [
                os.dup2(fd, 1000 + number)
                for number, fd in enumerate((os.open(os.devnull, os.O_RDWR), listening, log_descriptor))
            ]
            for target, source in ((0, 0), (1, 2), (2, 2), (_LISTEN_FD, 1), (_LOG_FD, 2)):
                os.dup2(inherited[source], target)
            os.closerange(_LOG_FD + 1, telling)
            os.closerange(telling + 1, 1100)
            os.setsid()
            signals.die_with_nobody()
            memory.bound_server()
            argv = [name, "--fork", "--shared", "1", *self.work.options(header)]
            environment = {**USER_TOOL_ENVIRONMENT, "LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
            os.execve(self.program, argv, environment)  # noqa: S606 - no shell is wanted
        except VTorqueError as error:
            _send_line(telling, error.to_dict())
        except OSError as error:
            fault = NodeFault("qemu-nbd could not be started", os.strerror(error.errno or errno.EIO))
            _send_line(telling, fault.to_dict())
        finally:
            os._exit(1)


def _send_line(fd: int, what: dict[str, t.Any]) -> None:
    """A line, which is in the pipe whole or not at all."""
    os.write(fd, json.dumps(what).encode() + b"\n")
