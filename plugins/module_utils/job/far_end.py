# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One ssh connection to the guest of rank 0, over which a job runs as if it ran here."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import pwd
import re
import selectors
import signal
import subprocess
import termios
import time
import types
import typing as t

from ..errors import VTorqueError
from ..records import ReadyGuest, ReadyRecord
from .lost_guest import GuestLost, LostWatch, ends_with

SSH = "/usr/bin/ssh"
SETPRIV = "/usr/bin/setpriv"
QUIET_S = 5.0
"""How long after the job's end its output may be silent and still open: a daemon of the job's may hold it."""
WORD_S = 3.0
"""How long after a connection broke the node may still find out that the guest is lost."""

OPTIONS = (
    "BatchMode=yes", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=none", "CheckHostIP=no", "VerifyHostKeyDNS=no",
    "UpdateHostKeys=no", "HostKeyAlgorithms=ssh-ed25519", "IdentitiesOnly=yes", "IdentityAgent=none",
    "PreferredAuthentications=publickey", "PubkeyAuthentication=yes", "PasswordAuthentication=no",
    "KbdInteractiveAuthentication=no", "HostbasedAuthentication=no", "GSSAPIAuthentication=no", "ForwardAgent=no",
    "ForwardX11=no", "ClearAllForwardings=yes", "PermitLocalCommand=no", "ControlMaster=no", "ControlPath=none",
    "ProxyCommand=none", "CanonicalizeHostname=no", "Compression=no", "EscapeChar=none", "ConnectTimeout=30",
    "ConnectionAttempts=1", "TCPKeepAlive=yes", "ServerAliveInterval=15", "ServerAliveCountMax=4", "LogLevel=ERROR",
)  # fmt: skip

X11_OPTIONS = ("ForwardX11=yes", "ForwardX11Trusted=yes", "LogLevel=FATAL")
"""With `qsub -X` the job may do with the user's display what it may on bare metal, where it has the real cookie.  That
the guest forwards none is not ssh's to say: the far end has clearer words."""

FORWARDED = tuple(
    sorted(
        signal.valid_signals()
        - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE}
        # an error of our own code raises these, and a handler would come back to it for ever
        - {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    )
)
"""What qsig may send and the guest's job gets; the others end this process, and thereby the job."""


class ConnectionLost(VTorqueError):
    """The connection broke after the job had begun: how it ended is not known."""


@dataclasses.dataclass(frozen=True)
class End:
    """How the far end says that it ended: `exit 37`, `signal 15`, `place /tmp/...`, `broken words`."""

    kind: str
    words: str

    @property
    def number(self) -> int:
        """The exit status, or the signal's number."""
        return int(self.words)


def environment(term: str = "", display: str = "") -> dict[str, str]:
    """What ssh itself runs in: nothing of the user's, but for the kind of his terminal and his display."""
    clean = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    if term:
        clean["TERM"] = term
    if display:  # the MOM has put its cookie into the home of passwd, where xauth looks for it
        clean.update(DISPLAY=display, HOME=pwd.getpwuid(os.getuid()).pw_dir)
    return clean


def command(
    record: ReadyRecord, directory: pathlib.Path, words: t.Sequence[str], *, terminal: bool = False, x11: bool = False
) -> list[str]:
    """The call of ssh that runs the far end's program in rank 0.

    Args:
        record: says where the guest is.
        directory: holds `job_key` and `known_hosts`.
        words: arguments of the far end; safe tokens, because the guest's login shell reads them.
        terminal: ask for a terminal in the guest.
        x11: forward the display.
    """
    guest: ReadyGuest = record.guests[0]
    # ssh takes the first of several values
    options = [
        *(X11_OPTIONS if x11 else ()),
        *OPTIONS,
        f"HostKeyAlias={guest.name}",
        f"UserKnownHostsFile={directory / 'known_hosts'}",
    ]
    ssh = [SSH, "-F", "none", "-tt" if terminal else "-T", "-i", str(directory / "job_key")]
    for option in options:
        ssh += ["-o", option]
    ssh += ["-p", str(guest.port), "-l", record.user, "--", guest.address]
    # ssh dies with us, however we die
    return [SETPRIV, "--pdeathsig", "KILL", *ssh, " ".join(["exec", record.far_end, *words])]


class Marks:
    """Takes what the far end says to us out of what the job prints.

    What comes before the mark of the beginning is the guest's login's (a profile that prints), not the job's.
    """

    def __init__(self, token: str) -> None:
        self._begin = f"vtorque-{token}-begin\n".encode()
        self._end = f"vtorque-{token}-end ".encode()
        self._held = b""
        self.before = b""
        self.begun = False
        self.end: End | None = None

    def feed(self, data: bytes) -> bytes:
        """What of this is the job's own; all that can be told is told at once."""
        data = self._held + data
        self._held = b""
        if not self.begun:
            before, mark, data = data.partition(self._begin)
            if not mark:
                self._held = before[-65_536:]
                return b""
            self.begun, self.before = True, before[-4096:]
        if self.end is not None:
            return data
        own, mark, rest = data.partition(self._end)
        if not mark:
            keep = _beginning_of(self._end, own)
            self._held = own[len(own) - keep :]
            return own[: len(own) - keep]
        line, newline, rest = rest.partition(b"\n")
        if not newline:
            self._held = mark + line
            return own
        kind, _blank, words = line.decode(errors="replace").partition(" ")
        self.end = End(kind, words)
        return own + rest

    def rest(self) -> bytes:
        """What was held back when the stream ended: the job's, when it had begun."""
        held, self._held = self._held, b""
        if self.begun:
            return held
        self.before = held[-4096:]
        return b""


def _beginning_of(mark: bytes, data: bytes) -> int:
    """How many bytes at the end of `data` may be the beginning of `mark`."""
    return next((n for n in range(min(len(mark) - 1, len(data)), 0, -1) if data.endswith(mark[:n])), 0)


class Conversation:
    """One run of the far end: what we say to it, what it prints, and how it ended.

    Args:
        watch: hears when a guest is lost: then the connection is ended, which the guest would leave open for long.
        write: takes what the job prints on 1 and 2; None: it goes there.
    """

    def __init__(
        self, record: ReadyRecord, directory: pathlib.Path, verb: str, said: bytes, watch: LostWatch,
        write: t.Callable[[int, bytes], None] | None = None,
    ) -> None:  # fmt: skip
        token = os.urandom(16).hex()  # as `secrets` has it, which loads OpenSSL
        self._call = command(record, directory, [verb, token])
        self._guest = f"guest {record.guests[0].name} ({record.guests[0].address})"
        self._said = bytearray(said)
        self._marks = (Marks(token), Marks(token))
        self._watch = watch
        self._write = write or write_all
        self._lost: GuestLost | None = None
        self._selector = selectors.DefaultSelector()
        self.signals: list[int] = []

    def run(self) -> End:
        """Talk until the far end has ended.

        Raises:
            VTorqueError: nothing was run in the guest; says why.
            GuestLost: a guest was lost; the job had begun.
            ConnectionLost: the connection broke without that; the job had begun.
        """
        with contextlib.ExitStack() as stack:
            wakeup = stack.enter_context(_caught())
            # a session of its own: a TERM for the job's session must not end the connection
            process = subprocess.Popen(
                self._call, env=environment(), cwd="/", start_new_session=True, restore_signals=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            stack.callback(_finish, process)
            stack.callback(self._selector.close)
            self._talk(process, wakeup)
        return self._ended()

    def _open(self, process: subprocess.Popen[bytes], wakeup: int) -> dict[int, int]:
        """The job's streams, as descriptors; everything that is waited for is registered."""
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise VTorqueError("the connection to the guest", "was started without its streams")
        streams = {process.stdout.fileno(): 0, process.stderr.fileno(): 1}
        for fd in (*streams, wakeup, self._watch.fileno()):
            if fd >= 0:
                self._selector.register(fd, selectors.EVENT_READ)
        self._stdin = process.stdin.fileno()
        os.set_blocking(self._stdin, False)
        self._selector.register(self._stdin, selectors.EVENT_WRITE)
        return streams

    def _talk(self, process: subprocess.Popen[bytes], wakeup: int) -> None:
        streams = self._open(process, wakeup)
        quiet_since = time.monotonic()
        while streams:
            timeout = QUIET_S if self._marks[1].end else None
            ready = collections.deque(key.fd for key, _events in self._selector.select(timeout))
            if any(fd in streams for fd in ready):
                quiet_since = time.monotonic()
            elif timeout is not None and time.monotonic() - quiet_since >= timeout:
                break
            for fd in ready:
                if fd == self._watch.fileno():
                    self._look(process)
                elif fd == wakeup:
                    self._pass_on(os.read(wakeup, 4096))
                elif fd == self._stdin:
                    self._say()
                elif not self._hear(fd, streams[fd]):
                    self._selector.unregister(fd)
                    del streams[fd]

    def _look(self, process: subprocess.Popen[bytes]) -> None:
        self._lost = self._lost or self._watch.lost()
        if self._lost is not None:  # what ssh has heard until now still arrives
            process.kill()

    def _hear(self, fd: int, which: int) -> bool:
        data = os.read(fd, 1 << 18)
        marks = self._marks[which]
        self._write((1, 2)[which], marks.feed(data) if data else marks.rest())
        return bool(data)

    def _pass_on(self, numbers: bytes) -> None:
        idle = not self._said
        for number in numbers:
            self.signals.append(number)
            self._said += b"signal %d\n" % number
        if idle and self._stdin >= 0:
            self._selector.register(self._stdin, selectors.EVENT_WRITE)

    def _say(self) -> None:
        try:
            sent = os.write(self._stdin, self._said[: 1 << 16])
        except BlockingIOError:
            return
        except BrokenPipeError:  # ssh is gone: its output says so
            self._selector.unregister(self._stdin)
            self._stdin = -1
            return
        del self._said[:sent]
        if not self._said:  # nothing to say now; the line stays open
            self._selector.unregister(self._stdin)

    def _ended(self) -> End:
        out, err = self._marks
        end = err.end
        if end is not None and end.kind != "broken":
            # the far end's shell is silent about a death by INT, and `exit 130` looks the same: what we sent tells
            interrupted = end == End("exit", str(128 + signal.SIGINT)) and signal.SIGINT in self.signals
            return End("signal", str(int(signal.SIGINT))) if interrupted else end
        if end is not None:
            raise VTorqueError("nothing was run", end.words)
        lost = self._lost or self._watch.wait(WORD_S)
        if lost is not None:
            if err.begun:
                raise lost
            raise VTorqueError("nothing was run", f"{lost.what}: {lost.why}", "; ".join(lost.lines))
        if err.begun:
            raise ConnectionLost(
                f"the connection to {self._guest} was lost",
                "the job had begun there; how it ended is not known",
                "its guest may have ended, panicked or lost its network",
            )
        said = " ".join((err.before or out.before).decode(errors="replace").split())
        raise VTorqueError(
            "nothing was run",
            f"no connection to {self._guest}: {said or 'it ended the session before the job began'}"[:600],
            # ssh itself would have said something
            "" if said else "an exit in a start file of the login shell (.bashrc, .profile) does that",
        )


@contextlib.contextmanager
def _caught() -> t.Iterator[int]:
    """A descriptor on which each signal arrives as a byte with its number, instead of having its effect."""

    def noted(_number: int, _frame: types.FrameType | None) -> None:
        """The interpreter has written the byte already."""

    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    former = {number: signal.signal(number, noted) for number in FORWARDED}
    before = signal.set_wakeup_fd(writing)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        for number, action in former.items():
            signal.signal(number, action)
        os.close(reading)
        os.close(writing)


def _finish(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(timeout=QUIET_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def write_all(fd: int, data: bytes) -> None:
    """Write what a job prints.

    Raises:
        VTorqueError: nobody takes it.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except OSError as error:
            raise VTorqueError("the job was ended", f"its output cannot be written: {error.strerror}") from error


def _run_session(call: list[str], watch: LostWatch, environment: dict[str, str]) -> int:
    """The status of ssh; a guest that is lost ends it, and the terminal is again as it was.

    Raises:
        GuestLost: see above.
    """
    before = termios.tcgetattr(0) if os.isatty(0) else None
    with subprocess.Popen(call, env=environment, cwd="/", restore_signals=True) as process:
        lost = ends_with(process.pid, watch)
        if lost is None:
            return process.wait()
        process.kill()
    if before is not None:
        termios.tcsetattr(0, termios.TCSANOW, before)
        os.write(2, b"\n")  # below what the session left in the line
    raise lost


def session(
    record: ReadyRecord, directory: pathlib.Path, place: str, watch: LostWatch, *, term: str, display: str = ""
) -> int:
    """An interactive session on this terminal, in a job that `bring` has taken to the guest.

    Args:
        place: where the guest keeps it.
        watch: hears when a guest is lost.
        term: kind of the user's terminal.
        display: the display that the job gets, as it is called here; "" for none.

    Returns:
        The exit status of the session.

    Raises:
        GuestLost: a guest was lost.
        ConnectionLost: the connection broke without that.
    """
    if not re.fullmatch(r"/[A-Za-z0-9._/-]{1,200}", place):
        raise VTorqueError("nothing was run", "the guest named an absurd place for the session")
    call = command(record, directory, ["session", place], terminal=True, x11=bool(display))
    # in the session of the terminal: the keyboard and the window's size are ssh's business
    code = _run_session(call, watch, environment(term, display))
    if code != 255:
        return code if code >= 0 else 128 - code
    if (lost := watch.wait(WORD_S)) is not None:
        raise lost
    with contextlib.suppress(subprocess.TimeoutExpired):  # a guest that hangs has not said how the session ended
        asked = subprocess.run(
            command(record, directory, ["status", place]), env=environment(), cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False,
        )  # fmt: skip
        if b"exit 255" in asked.stdout.split(b"\n"):
            return 255
    raise ConnectionLost(f"the connection to guest {record.guests[0].name} was lost", "the session is over")
