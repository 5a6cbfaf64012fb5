# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""virtiofsd as the job's user: what a guest does in a shared directory can be no more than the user may do there.

The one in C wants capabilities; a user namespace in which the user's ids are all there is gives it some that are good
for nothing that is not theirs (docs/adr/0023-files-of-users.md).  The one in Rust runs as a plain user and does that by
itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import pathlib
import resource
import select
import signal
import struct
import subprocess
import typing as t

from ...effects import leaves_nothing
from ...errors import NodeFault, SiteFault, VTorqueError
from ...system import files as files_module
from ...system.clock import Deadline
from ...system.process import prctl, signals
from ...system.process.environment import TOOL_ENVIRONMENT, USER_TOOL_ENVIRONMENT
from ...time_budget import VIRTIOFSD_START_S
from ...wire.messages import Owner
from ..state.settings import NodeSettings
from ..system import memory
from ..system.cpus import Cores
from . import qemu_socket
from .serving import Serving

NAME = "vtorque-virtiofsd"
"""Begins the first argument of every one of ours; the guest's directory follows (`leftovers.processes`)."""
OPEN_FILES = 65536

# linux/sched.h, linux/capability.h
_NEWUSER = 0x10000000
_CAPABILITY_VERSION_3 = 0x20080522
_SETGROUPS = {"x86_64": 116, "aarch64": 159}


def program(settings: NodeSettings) -> tuple[pathlib.Path, bool]:
    """The virtiofsd of this node, and whether it is the one in C.

    Raises:
        NodeFault: there is none, or it does not run.
    """
    for path in settings.virtiofsd:
        if path.exists():
            try:
                done = subprocess.run(
                    [str(path), "--version"],
                    capture_output=True,
                    timeout=10,
                    stdin=subprocess.DEVNULL,
                    check=True,
                    env=TOOL_ENVIRONMENT,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise NodeFault(f"{path} on {settings.node_name}", str(error), cause="programs") from error
            return path, b"virtiofsd version" in done.stdout + done.stderr
    raise NodeFault(
        f"virtiofsd on {settings.node_name}",
        "is not installed, and the site shares directories by it",
        "install the package virtiofsd, or qemu-system-common of Debian 12",
        cause="programs",
    )


def _known(settings: NodeSettings) -> tuple[pathlib.Path, bool]:
    """Like `program`, asked once since the node has booted and had this very file."""
    cache_file = settings.run_dir / "virtiofsd.json"
    files = [_file(path) for path in settings.virtiofsd if path.exists()]
    with contextlib.suppress(OSError, VTorqueError, KeyError):
        was = files_module.read_json(cache_file)
        if files and was["file"] == files[0]:
            return pathlib.Path(was["file"][0]), bool(was["in_c"])
    path, in_c = program(settings)
    with contextlib.suppress(VTorqueError):  # it is asked again
        files_module.write(cache_file, json.dumps({"file": _file(path), "in_c": in_c}))
    return path, in_c


def _file(path: pathlib.Path) -> list[str | int]:
    """A program's name, and what changes when another takes its place."""
    facts = path.stat()
    return [str(path), facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns]


def command(in_c: bool, fd: int, directory: str, guest: pathlib.Path, tag: str) -> list[str]:
    """The words of virtiofsd; the first is no path, but says whose it is.

    Args:
        in_c: whether it is the one in C.
        fd: its listening socket.
        directory: what is shared.
        guest: the guest's directory.
        tag: of the share.
    """
    first = f"{NAME}:{guest}/{tag}"
    if not in_c:
        return [
            first,
            f"--fd={fd}",
            "--shared-dir",
            directory,
            "--sandbox",
            "namespace",
            "--rlimit-nofile",
            "0",
            "--log-level",
            "error",
        ]
    # not its own namespaces: they need a new /proc, which the kernel refuses where the node's is covered anywhere, as
    # in containers; libfuse's options end at a comma that is not escaped
    source = directory.replace("\\", "\\\\").replace(",", "\\,")
    return [
        first,
        f"--fd={fd}",
        "-f",
        "--rlimit-nofile=0",
        "-o",
        f"source={source}",
        "-o",
        "sandbox=chroot",
        "-o",
        "log_level=err",
    ]


def start(tag: str, directory: str, serving: Serving) -> pathlib.Path:
    """Share a directory with one guest, as the user; it ends when the guest's qemu lets go of it.

    Args:
        tag: of the share.
        directory: on this node; opened with the user's rights alone.
        serving: whom, and on which terms.

    Returns:
        The socket.

    Raises:
        SiteFault: the user cannot come to the directory, or in no time.
        NodeFault: virtiofsd is not there, or does not start.
    """
    path, in_c = _known(serving.settings)
    guest = serving.guest
    place = guest / f"{tag}.sock"
    with qemu_socket.listening(place, serving.qemu) as listening:
        log_descriptor = os.open(guest / f"{tag}.log", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            child = _Child(
                serving.owner, directory, listening.fileno(), log_descriptor, confined=in_c, cores=serving.cores
            )
            child.run(
                path,
                command(in_c, 3, directory, guest, tag),
                Deadline.after(serving.deadline.left_s(VIRTIOFSD_START_S)),
            )
        finally:
            os.close(log_descriptor)
    return place


_NAMESPACES = "virtiofsd needs user namespaces here"


@leaves_nothing
def is_missed(output: str, socket: pathlib.Path) -> bool:
    """Return whether a hypervisor that did not start complains of a virtiofsd.

    One that ends for another reason ends it too.

    Args:
        output: of libvirt's error, which repeats qemu's.
        socket: at which the virtiofsd was to be found.
    """
    return str(socket) in output or "vhost" in output or "chr-vu-" in output


@leaves_nothing
def last_output(guest: pathlib.Path, tag: str) -> str:
    """What virtiofsd said last; "" when it said nothing."""
    with contextlib.suppress(OSError, IndexError):
        return (guest / f"{tag}.log").read_text(encoding="utf-8", errors="replace").splitlines()[-1][-300:]
    return ""


@leaves_nothing
def hint_of(output: str) -> str:
    """Return what to see to where one in Rust has ended; it makes its namespaces itself, and only its log says so.

    Args:
        output: its last line.
    """
    return f"{_NAMESPACES}, and a /proc of which nothing is covered" if "Error entering sandbox" in output else ""


class _Child:
    """A process on its way from root to the user's virtiofsd.

    Args:
        confined: in a user namespace of its own.
    """

    def __init__(
        self, owner: Owner, directory: str, listening: int, log_descriptor: int, *, confined: bool, cores: Cores
    ) -> None:
        self.owner = owner
        self.directory = directory
        self.listening = listening
        self.log_descriptor = log_descriptor
        self.confined = confined
        self.cores = cores
        self.gids = [owner.gid, *(group.gid for group in owner.groups if group.gid > 0)]

    def run(self, path: pathlib.Path, argv: list[str], deadline: Deadline) -> None:
        """Until it has become virtiofsd; see `start` for what is raised."""
        telling, ready_pipe = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(path, argv, parent, telling[1], ready_pipe[0])
        os.close(telling[1])
        os.close(ready_pipe[0])
        try:
            words_of_child = self._read_answer(telling[0], deadline)
            if words_of_child == b"mapped?":
                self._map(pid)
                os.write(ready_pipe[1], b"!")
                # nothing more is said when it has become virtiofsd
                words_of_child = self._read_answer(telling[0], deadline)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        finally:
            os.close(telling[0])
            os.close(ready_pipe[1])
        if words_of_child:
            os.waitpid(pid, 0)
            what, _blank, number = words_of_child.decode().rpartition(" ")
            self._complain(what, int(number))

    def _read_answer(self, fd: int, deadline: Deadline) -> bytes:
        if not select.select([fd], [], [], deadline.left_s())[0]:
            what = f"{self.directory} on this node"
            raise SiteFault(what, f"{self.owner.user} waits for it in vain", "see to the home server")
        return os.read(fd, 200)

    def _map(self, pid: int) -> None:
        process = pathlib.Path("/proc", str(pid))
        (process / "uid_map").write_text(f"{self.owner.uid} {self.owner.uid} 1\n", encoding="ascii")
        gids = dict.fromkeys(self.gids)
        # the kernel takes 340 lines at most; what is not mapped still counts where files are opened
        lines = [f"{gid} {gid} 1\n" for gid in gids][:340]
        (process / "gid_map").write_text("".join(lines), encoding="ascii")

    def _complain(self, what: str, number: int) -> t.NoReturn:
        why = os.strerror(number)
        if what == "directory":
            raise SiteFault(
                f"{self.directory} on this node", f"{self.owner.user} cannot open it: {why}", "see to the home server"
            )
        hint = _NAMESPACES if what == "namespace" else ""
        raise NodeFault("virtiofsd could not be started", f"{what}: {why}", hint)

    def _become(self, path: pathlib.Path, argv: list[str], parent: int, telling: int, ready: int) -> t.NoReturn:
        """The child's whole life before it is virtiofsd."""
        what = "descriptors"
        try:
            signals.reset_signals()
            if self.cores:
                os.sched_setaffinity(0, self.cores)
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            listening = os.dup2(self.listening, 3) if self.listening != 3 else 3
            os.set_inheritable(listening, True)
            for number, source in enumerate((nothing, self.log_descriptor, self.log_descriptor)):
                os.dup2(source, number)
            os.chdir("/")
            _raise_limit()
            memory.bound_server()
            os.setgroups(self.gids)
            if self.confined:
                what = "namespace"
                _check(_libc().unshare(_NEWUSER))
                os.write(telling, b"mapped?")
                if not os.read(ready, 1):
                    os._exit(1)
            what = "ids"
            prctl.keep_capabilities()
            os.setresgid(self.owner.gid, self.owner.gid, self.owner.gid)
            os.setresuid(self.owner.uid, self.owner.uid, self.owner.uid)
            # a change of ids takes it back, so not before
            if not signals.die_with(parent):
                os._exit(1)
            what = "directory"
            os.close(os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            if self.confined:
                what = "capabilities"
                _keep_groups()
                _keep_capabilities()
            what = "program"
            os.setsid()
            signals.die_with_nobody()
            os.execve(path, argv, USER_TOOL_ENVIRONMENT)  # noqa: S606 - no shell is wanted
        except OSError as error:
            os.write(telling, f"{what} {error.errno or errno.EIO}".encode())
        finally:
            os._exit(1)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _raise_limit() -> None:
    """Every file that the guest has open is open here."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else max(hard, OPEN_FILES)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))


def _keep_capabilities() -> None:
    """Keep the capabilities that serve the user's files; a program that is not root's gets none unasked."""
    libc = _libc()
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _check(libc.capget(header, data))
    low = struct.unpack("III", data.raw[:12])
    high = struct.unpack("III", data.raw[12:])
    permitted = (low[1], high[1])
    _check(libc.capset(header, struct.pack("IIIIII", *(part for one in permitted for part in (one, one, one)))))
    bits = permitted[0] | permitted[1] << 32
    for number in range(64):
        if bits >> number & 1:
            prctl.raise_ambient(number)


def _keep_groups() -> None:
    """virtiofsd drops all supplementary groups when it starts; here that call succeeds, and does nothing."""
    number = _SETGROUPS.get(os.uname().machine)
    if number is None:
        return
    # load the number of the call; setgroups: return 0, else: allow (linux/filter.h, linux/seccomp.h)
    code = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000), (0x06, 0, 0, 0x7FFF0000))
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program_of = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
    prctl.filter_calls(program_of)
