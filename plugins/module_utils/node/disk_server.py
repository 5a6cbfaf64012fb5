# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk of the user's own, handed to his guest by a process that is the user: qemu-nbd, over a socket of qemu's alone.

Whatever the file is or becomes meanwhile, it is opened with his rights; root and qemu's user never open it, so that it
may lie where they may not read.  qemu-nbd holds the locks that QEMU's programs have among each other.
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

from ..errors import ImageFault, NodeFault, SiteFault, UserFault, VTorqueError, error_from_dict, printable
from ..guestspec import Owner
from ..records import Deadline
from . import ending, qemu_socket
from .cores import Cores
from .disk_header import DiskHeader, read_header
from .settings import NodeSettings

NAME = "vtorque-disk"
"""Begins the first argument of every one of ours; the guest's directory follows (`remains.processes`)."""
LOG, SOCKET = "data.log", "data.sock"
"""In the guest's directory; which guest has a disk, the log tells."""
START_S = 20.0
"""For the user's way to his file: a home server that is silent must not use up the time of the start."""
LEAST_BYTES = 16 << 20
_LISTEN_FD, _LOG_FD = 3, 4
_LOCKED = "Failed to get "


def look(path: str) -> DiskHeader:
    """What a disk of the user's is; for a process of his own uid.

    Args:
        path: absolute.

    Raises:
        UserFault: it cannot be read and written, or is no disk that stands on nothing else.
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
        raise UserFault(what, f"cannot be opened to read and write: {error.strerror}") from error
    if header.virtual_bytes < LEAST_BYTES:
        raise UserFault(what, f"is smaller than {LEAST_BYTES >> 20} MiB")
    return header


def serve(
    path: str, guest: pathlib.Path, owner: Owner, settings: NodeSettings, qemu: tuple[int, int], deadline: Deadline,
    *, cores: Cores = (),
) -> pathlib.Path:  # fmt: skip
    """Hand a disk to one guest, as the user; it ends when the guest's qemu lets go of it.

    Args:
        path: of the disk; opened with the user's rights alone.
        guest: the guest's directory.
        owner: as whom.
        settings: this node's own word.
        qemu: uid and gid of qemu, which alone may connect.
        deadline: of the making.
        cores: those of this node on which it stays; (): all.

    Returns:
        The socket.

    Raises:
        UserFault: it is no such disk, or is in use.
        SiteFault: the file is out of reach.
        NodeFault: this node has no qemu-nbd.
    """
    what = f"disk {printable(path)}"
    if not settings.qemu_nbd.exists():
        raise NodeFault(f"{settings.qemu_nbd} on {settings.node_name}", "is not installed", cause="programs")
    place = guest / SOCKET
    until = Deadline.after(deadline.left_s(START_S))
    with qemu_socket.listening(place, qemu) as listening:
        said = os.open(guest / LOG, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            status = _Child(path, owner, cores, settings.qemu_nbd).run(
                f"{NAME}:{guest}/data", listening.fileno(), said, until, what
            )
        finally:
            os.close(said)
    if status != 0:
        words = (guest / LOG).read_text(encoding="utf-8", errors="replace").split("\n")
        if any(_LOCKED in line for line in words):
            raise UserFault(what, "is in use, by another job or by a program of yours", "one job at a time has a disk")
        told = next((line for line in words if line.strip()), f"qemu-nbd ended with status {status}")
        raise UserFault(what, printable(told[-300:]))
    return place


class _Child:
    """A process on its way from root to the user's qemu-nbd, which forks when it is at work."""

    def __init__(self, path: str, owner: Owner, cores: Cores, program: pathlib.Path) -> None:
        self.path = path
        self.owner = owner
        self.cores = cores
        self.program = program

    def run(self, name: str, listening: int, said: int, deadline: Deadline, what: str) -> int:
        """Until it serves, or has failed; its exit status."""
        hearing, telling = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(name, listening, said, parent, telling)
        os.close(telling)
        handle = os.pidfd_open(pid)
        try:
            for fd in (hearing, handle):
                if not select.select([fd], [], [], deadline.left_s())[0]:
                    os.kill(pid, signal.SIGKILL)
                    raise SiteFault(what, f"{self.owner.user} waits for it in vain", "see to the home server")
                if fd == hearing and (words := os.read(fd, 1 << 14)):
                    os.waitpid(pid, 0)
                    raise error_from_dict(json.loads(words))
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        finally:
            os.close(hearing)
            os.close(handle)

    def _become(self, name: str, listening: int, said: int, parent: int, telling: int) -> t.NoReturn:
        """The child's whole life before it is qemu-nbd."""
        try:
            ending.settle()
            if self.cores:
                os.sched_setaffinity(0, self.cores)
            os.setgroups([self.owner.gid, *(group.gid for group in self.owner.groups if group.gid > 0)])
            os.setresgid(self.owner.gid, self.owner.gid, self.owner.gid)
            os.setresuid(self.owner.uid, self.owner.uid, self.owner.uid)
            # a change of ids takes it back, so not before
            if not ending.die_with(parent):
                os._exit(1)
            os.chdir("/")
            header = look(self.path)
            # beyond all others first: a number may be one of those that are wanted
            kept = [
                os.dup2(fd, 1000 + number)
                for number, fd in enumerate((os.open(os.devnull, os.O_RDWR), listening, said))
            ]
            for target, source in ((0, 0), (1, 2), (2, 2), (_LISTEN_FD, 1), (_LOG_FD, 2)):
                os.dup2(kept[source], target)
            os.closerange(_LOG_FD + 1, telling)
            os.closerange(telling + 1, 1100)
            os.setsid()
            ending.die_with_nobody()
            words = [name, "--fork", "--format", header.format, "--discard", "unmap", "--shared", "1", self.path]
            environment = {
                "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid()),
            }  # fmt: skip
            os.execve(self.program, words, environment)  # noqa: S606 - no shell is wanted
        except VTorqueError as error:
            os.write(telling, json.dumps(error.to_dict()).encode())
        except OSError as error:
            fault = NodeFault("qemu-nbd could not be started", os.strerror(error.errno or errno.EIO))
            os.write(telling, json.dumps(fault.to_dict()).encode())
        finally:
            os._exit(1)
