# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready, refusal and job records: what root writes about a job, and how it is read back safely.

/run/vtorque/jobs/<job>.<start>/         0711 root: ready.json or refusal.json, known_hosts, job_key, plan.json
/var/lib/vtorque/records/<job>.<start>/  record.json, log and consoles; they outlive the job
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import stat
import struct
import time
import typing as t

from .errors import VTorqueError, printable
from .frozen import frozen
from .guest_kinds import SLG
from .guestspec import JOB_ID

RUN_DIR = pathlib.Path("/run/vtorque")
STATE_DIR = pathlib.Path("/var/lib/vtorque")
CONSOLE = "console"
"""In the run directory of a start in OSv: the way to the console of its guest."""
CONSOLE_END = ".console.log"
"""Beside a record, behind a guest's name: the end of what it wrote on its console."""


def job_key(job_id: str, start: int) -> str:
    """The name under which everything of one start of a job is kept: `4711.head.1`, `72-1.head.1`.

    Array members are spelled as Torque spells their script files, without brackets (torque.md).

    Args:
        job_id: as the batch system names it.
        start: Torque's start_count.

    Returns:
        A name without `/` and brackets.

    Raises:
        VTorqueError: `job_id` is not of the form of a job id.
    """
    if not re.fullmatch(JOB_ID, job_id) or ".." in job_id:
        raise VTorqueError(f"job id {job_id[:80]!r}", "not of the form number.server or number[index].server")
    return f"{job_id.replace('[', '-').replace(']', '')}.{int(start)}"


HALF = re.compile(r"\..+\.([0-9]+)")
"""What a file is called while it is written, with the number of the process (`write`, `shell_links.point`)."""
_KEY = re.compile(r"([0-9]+)(?:-([0-9]+))?\.(.+)\.([0-9]+)")


def start_of(key: str) -> tuple[str, int] | None:
    """Job id and start that a key was made of (`job_key`).

    Args:
        key: the name of a directory.

    Returns:
        None: it is no such name.
    """
    found = _KEY.fullmatch(key)
    if not found:
        return None
    member = f"[{found[2]}]" if found[2] else ""
    return f"{found[1]}{member}.{found[3]}", int(found[4])


def run_directory(job_id: str, start: int, run_dir: pathlib.Path = RUN_DIR) -> pathlib.Path:
    """Where root keeps what is true of a running job on its mother superior.

    Args:
        job_id: the job.
        start: Torque's start_count.
        run_dir: root's directory of what is true while jobs run.

    Returns:
        Its path; nothing is made.

    Raises:
        VTorqueError: `job_id` is not of the form of a job id.
    """
    return run_dir / "jobs" / job_key(job_id, start)


@frozen
class ProcessId:
    """A process that cannot be mistaken for a later one of the same number.

    Attributes:
        pid: process id.
        start_ticks: its start time in clock ticks since boot (field 22 of /proc/PID/stat).
    """

    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.pid}.{self.start_ticks}"

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Raises FileNotFoundError when there is no such process."""
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # the command's name may hold blanks and parentheses: count from the last one
        return cls(pid, int(text.rpartition(")")[2].split()[19]))


def boot_id() -> str:
    """The kernel's name for this boot; a record of another boot speaks of nothing that lives."""
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@frozen
class ReadyGuest:
    """A guest as the job's shell needs it.

    Attributes:
        vcpus: its virtual processors; 0: not told, and the job's own counts stay.
        port: where its sshd listens.
        kind: of `guest_kinds.KINDS`.
    """

    rank: int
    name: str
    node: str
    address: str
    vcpus: int = 0
    port: int = 22
    kind: str = SLG.name


@frozen
class ReadyBare:
    """A host of a mixed job that stays bare, as the job's shell needs it.

    Attributes:
        slots: how often the job's node file names it.
    """

    name: str
    slots: int


@frozen
class ReadyRecord:
    """The guests of this start are ready, and this process may run the job in them.

    Attributes:
        shell: the process that was the prologue's parent when root decided.
        boot_id: the boot in which that was true.
        guests: by rank, 0 first.
        user_shell: the user's own `-S`, or "" for the login shell of passwd.
        far_end: the program in the guest that runs the job (`templates/guest/run.sh`).
        bare: the hosts of a mixed job that stay bare, in the order of the node file.
    """

    job_id: str
    start: int
    user: str
    shell: ProcessId
    boot_id: str
    guests: tuple[ReadyGuest, ...]
    user_shell: str
    far_end: str = "/usr/lib/vtorque/run"
    bare: tuple[ReadyBare, ...] = ()

    @classmethod
    def from_dict(cls, data: dict[str, t.Any]) -> ReadyRecord:
        """The record as `write` stored it; root wrote it, so the form is taken as given."""
        rest = {**data, "shell": ProcessId(**data["shell"]), "guests": tuple(ReadyGuest(**g) for g in data["guests"])}
        return cls(**{**rest, "bare": tuple(ReadyBare(**one) for one in data.get("bare", ()))})


@frozen
class RefusalRecord:
    """Root decided that this start runs nothing, and why: the job's shell prints it and fails.

    Attributes:
        lines: what more there is to say, printed below the hint.
    """

    job_id: str
    start: int
    fault: str
    what: str
    why: str
    hint: str
    lines: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, data: dict[str, t.Any]) -> RefusalRecord:
        """The record as `write` stored it."""
        return cls(**{**data, "lines": tuple(data.get("lines", ()))})


@frozen
class LostRecord:
    """A guest of this start ended or was paused after it was ready: the job's shell says so and ends the job.

    Attributes:
        guest: its name.
        reason: what libvirt said of it, in words.
        console: the last lines of its console, in one line; "" when it was silent.
        when: seconds since the epoch.
    """

    guest: str
    node: str
    reason: str
    console: str
    when: float

    @classmethod
    def from_dict(cls, data: dict[str, t.Any]) -> LostRecord:
        """The record as `write` stored it."""
        return cls(**data)


def leave_lost(directory: pathlib.Path, lost: LostRecord, *, reader_uid: int | None) -> bool:
    """Let the job's shell know of a lost guest: whole first, then heard (it watches the ready record).

    Args:
        directory: the run directory of the start, on the mother superior.
        lost: which guest.
        reader_uid: the job's owner.

    Returns:
        False: there is no such start here, or another guest was lost before this one.

    Raises:
        VTorqueError: it was not written.
    """
    if not directory.is_dir() or (directory / "lost.json").exists():
        return False
    write_json(directory / "lost.json", lost, reader_uid=reader_uid)
    with contextlib.suppress(FileNotFoundError):  # nobody watches it yet; who comes looks first
        os.utime(directory / "ready.json")
    return True


def starts_of(job_id: str, directory: pathlib.Path) -> tuple[int, ...]:
    """The starts of a job of which a directory (of runs, guests or records) holds something, in order.

    Args:
        job_id: the job.
        directory: holds one directory a start.

    Returns:
        Numbers of starts.
    """
    spelled = re.escape(job_key(job_id, 0).removesuffix("0"))
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    return tuple(sorted(int(m[1]) for name in names if (m := re.fullmatch(spelled + r"([0-9]{1,10})", name))))


def make_directory(path: pathlib.Path, mode: int = 0o711) -> None:
    """Make a directory of root's, and those above it that are missing, whatever the umask is.

    It is never open to more than its mode, not for a moment: who opened it then would keep what he had.
    Torque runs `prologue` with umask 0077 (torque.md), and the job's owner must pass through.

    Args:
        path: absolute.
        mode: its own; those above it get 0711.  One that is there keeps what it has.

    Raises:
        VTorqueError: it is not there and was not made.
    """
    try:
        for part in reversed([path, *path.parents]):
            if not part.is_dir():
                wanted = mode if part == path else 0o711
                part.mkdir(wanted, exist_ok=True)
                if stat.S_IMODE(part.stat().st_mode) != wanted:  # the umask is narrow
                    part.chmod(wanted)
    except OSError as error:
        raise VTorqueError(f"{path} was not made", str(error)) from error


def make_record_directory(path: pathlib.Path, reader_uid: int | None = None) -> None:
    """Make the directory of one start's record, which the job's owner may list.

    That a job was there is no secret (the batch server tells everybody), so the directory of all records may be
    listed: by it a short job id is found.  What lies in a record is its owner's alone.

    Args:
        path: absolute; its parent holds all records of this host.
        reader_uid: the job's owner; None: not known, and nobody's right to list it changes.

    Raises:
        VTorqueError: it is not there and was not made.
    """
    make_directory(path)
    try:
        if stat.S_IMODE(path.parent.stat().st_mode) == 0o711:
            path.parent.chmod(0o755)
        if reader_uid is not None:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _grant(fd, reader_uid, 5, others=1)
            finally:
                os.close(fd)
    except OSError as error:
        raise VTorqueError(f"{path} was not opened to its owner", str(error)) from error


def let_read(fd: int, uid: int) -> None:
    """Let one more user read a file: what `setfacl -m u:UID:r` does, without starting a program.

    Args:
        fd: the file; the rights of its group are taken away.
        uid: who may read it.

    Raises:
        OSError: the file system knows no ACLs, or refuses this one.
    """
    _grant(fd, uid, 4)


def let_use(fd: int, uid: int) -> None:
    """Let one more user read and write, as `let_read`.

    Args:
        fd: of what is no file with a content, which he could fill the disk with.
        uid: who may.

    Raises:
        OSError: the file system knows no ACLs, or refuses this one.
    """
    _grant(fd, uid, 6)


def _grant(fd: int, uid: int, rights: int, *, others: int = 0) -> None:
    """The form is the kernel's (linux/posix_acl_xattr.h): a version, then tag, permissions and id of each entry."""
    nobody, owner = 0xFFFFFFFF, stat.S_IMODE(os.fstat(fd).st_mode) >> 6
    entries = (
        (0x01, owner, nobody), (0x02, rights, uid), (0x04, 0, nobody), (0x10, rights, nobody), (0x20, others, nobody)
    )  # fmt: skip
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    # by this name, for the descriptor of a socket can only be had as a path (O_PATH)
    try:
        os.setxattr(f"/proc/self/fd/{fd}", "system.posix_acl_access", acl)
    except OSError as error:  # whoever judges the disk by the file would look for one of that name
        raise OSError(error.errno, error.strerror) from None


def write(path: pathlib.Path, content: str, *, reader_uid: int | None = None, mode: int = 0o400) -> None:
    """Write a file of root's that appears whole, with its final owner and mode, or not at all.

    Args:
        path: where; its directory exists and is root's.
        content: the text.
        reader_uid: a user who may read it, granted by an ACL: never by group, never by ownership (a group may be
            shared by everybody, and an owner could change the file).
        mode: 0o444 for what everybody may read.

    Raises:
        VTorqueError: the file or its ACL could not be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o400)
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            os.fchmod(fd, mode)
            stream.write(content)
            if reader_uid is not None:
                stream.flush()
                let_read(fd, reader_uid)
        temporary.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise VTorqueError(f"{path} was not written", str(error)) from error


def remove_halves(directory: pathlib.Path) -> tuple[str, ...]:
    """Take away what `write` began here in processes that are gone: a kill cut them short.

    Args:
        directory: root's.

    Returns:
        Names of the files.

    Raises:
        OSError: one would not go.
    """
    removed = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        half = HALF.fullmatch(path.name)
        if half and not pathlib.Path("/proc", half[1]).exists():
            path.unlink(missing_ok=True)
            removed.append(path.name)
    return tuple(removed)


def write_json(path: pathlib.Path, thing: t.Any, *, reader_uid: int | None = None) -> None:
    """`write`, for a dataclass.

    Args:
        path: where.
        thing: the dataclass.
        reader_uid: a user who may read it.

    Raises:
        VTorqueError: it was not written.
    """
    write(path, json.dumps(dataclasses.asdict(thing), ensure_ascii=False), reader_uid=reader_uid)


def read_json(path: pathlib.Path, *, limit: int = 1 << 20) -> dict[str, t.Any]:
    """Read a record that only root can have written.

    Args:
        path: where.
        limit: greatest size, in bytes.

    Returns:
        The record.

    Raises:
        FileNotFoundError: there is none.
        VTorqueError: it is not a regular file of root's that nobody else may write, or not JSON.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(fd, encoding="utf-8") as stream:
        facts = os.fstat(fd)
        # with an ACL the group bits are the ACL's mask: write stays out of it
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != 0 or facts.st_mode & 0o022:
            raise VTorqueError(f"{path}", "not a file that only root can write: not believed")
        try:
            data = json.loads(stream.read(limit))
        except (ValueError, RecursionError) as error:
            raise VTorqueError(f"{path}", f"not a record: {error}") from error
    if not isinstance(data, dict):
        raise VTorqueError(f"{path}", "not a record")
    return data


MORE = "  | "
"""Before each further line of what is said at one time: none but the first can look as if it had a time."""


def log_line(text: str) -> bytes:
    """A line of a log, with the time before it; of a text of several lines (a traceback) the others are marked.

    All that is said in a log goes through here: much of it holds words of users, of guests and of other nodes.

    Args:
        text: of any characters; those that do not print become `?`, and tabs blanks.

    Returns:
        One line or several, the last ended.
    """
    lines = [printable(line.expandtabs()) for line in text.rstrip("\n").split("\n")]
    words = f"\n{MORE}".join(lines)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {words}\n".encode(errors="replace")


class Timings:
    """Seconds that each phase took, in the order in which the phases began.

    Use: `with timings.phase("seed"): ...`; a phase that comes twice is added up.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> t.Iterator[None]:
        """Measure what happens inside, whether it fails or not."""
        self.seconds.setdefault(name, 0.0)
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - begin


def since_epoch(moment: float) -> float:
    """A moment of the monotonic clock, as people and records tell it.

    Nothing is timed by the system's clock, which somebody may set while a job begins.

    Args:
        moment: seconds of the monotonic clock.

    Returns:
        Seconds since the epoch.
    """
    return time.time() - (time.monotonic() - moment)


@frozen
class Deadline:
    """A moment on the monotonic clock that no wait may pass; that clock is the same in all processes of a node."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline that many seconds from now.

        Args:
            seconds: from now.

        Returns:
            A moment on the monotonic clock.
        """
        return cls(time.monotonic() + seconds)

    def left_s(self, at_most: float = float("inf")) -> float:
        """Seconds that are left, never negative, never more than `at_most`.

        Args:
            at_most: seconds.

        Returns:
            Seconds.
        """
        return max(0.0, min(self.at - time.monotonic(), at_most))

    @property
    def passed(self) -> bool:
        """Is there no time left?"""
        return self.left_s() <= 0.0
