# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One ssh connection to the guest of rank 0, over which a job runs as if it ran here."""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import re
import selectors
import signal
import subprocess
import termios
import time
import typing as t

from ...errors import VTorqueError
from ...frozen import frozen
from ...state import shell_message
from ...state.records import ReadyRecord
from ...wire import lines
from . import ssh_command
from . import ssh_stream as line
from .job_signals import CHECKPOINT, PARK, PAUSES, Witness, caught
from .lost_guest import GuestLost, LostWatch, wait_for_end_or_loss
from .ssh_stream import Line

SILENT_S = 30.0
"""For the far end over an early line to speak: a start file that reads on would wait for our word, as we for its."""
MARK_S, ON_THE_WAY = 60.0, 16 << 20
"""For the mark of the end on one stream when the other has it: seconds of silence, and bytes.  What a job wrote is in
the guest's socket, sshd's window (2 MiB) and a pipe, and is not as much; nor does a guest that lives stop in it for a
minute."""
WORD_S = 3.0
"""How long after a connection broke the node may still find out that the guest is lost."""


class ConnectionLost(VTorqueError):
    """The connection broke after the job had begun: how it ended is not known."""


class NotBegun(VTorqueError):
    """The guest gave no session: nothing was run, and another try harms nothing."""


@frozen
class End:
    """How the far end says that it ended: `exit 37`, `signal 15`, `place /tmp/...`, `broken words`."""

    kind: str
    text: str

    @property
    def number(self) -> int:
        """The exit status, or the signal's number."""
        return int(self.text)


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
        kind, _blank, text = line.decode(errors="replace").partition(" ")
        self.end = End(kind, text)
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
        early: over the line that the prologue has begun for this start, if it is of use.
        witness: hears what is for every process of the job; None: whatever comes is.
    """

    def __init__(
        self,
        record: ReadyRecord,
        directory: pathlib.Path,
        verb: str,
        stdin: bytes,
        watch: LostWatch,
        write: t.Callable[[int, bytes], None] | None = None,
        *,
        early: bool = False,
        witness: Witness | None = None,
    ) -> None:
        self._record = record
        self._directory = directory
        self._verb = verb
        self._early = early
        self._witness = witness
        self._guest = f"guest {record.guests[0].name} ({record.guests[0].address})"
        self._said = bytearray(stdin)
        self._watch = watch
        self._write = write or write_all
        self._lost: GuestLost | None = None
        self.signals: list[int] = []

    def run(self) -> End:
        """Talk until the far end has ended.

        Raises:
            VTorqueError: nothing was run in the guest; says why.
            GuestLost: a guest was lost; the job had begun.
            ConnectionLost: the connection broke without that; the job had begun.
        """
        with caught() as wakeup:
            early = line.take(self._directory) if self._early else None
            if early is None or not self._talk(early, wakeup):
                self._talk(line.OwnLine(self._call), wakeup)
        return self._ended()

    def _call(self, token: str) -> list[str]:
        return ssh_command.command(self._record, self._directory, [self._verb, token])

    def _talk(self, over: Line, wakeup: int) -> bool:
        """Until the far end has ended; False: it ended before it took a word, and may be asked over another line."""
        self._line = over
        self._marks = (Marks(over.token), Marks(over.token))
        self._silent = over.early
        self._offered = self._broken = False
        self._after = 0
        streams = {over.out: 0, over.err: 1}
        with contextlib.closing(over), selectors.DefaultSelector() as self._selector:
            for fd in (*streams, wakeup, self._watch.fileno(), self._witness.fileno() if self._witness else -1):
                if fd >= 0:
                    self._selector.register(fd, selectors.EVENT_READ)
            os.set_blocking(over.stdin, False)
            self._listen(streams, wakeup)
        return not self._silent or self._lost is not None

    def _listen(self, streams: dict[int, int], wakeup: int) -> None:
        quiet_since = time.monotonic()
        while streams and not self._over():
            self._offer()
            timeout = SILENT_S if self._silent and not self._begun() else MARK_S if self._one_has_ended() else None
            ready = collections.deque(key.fd for key, _events in self._selector.select(timeout))
            # whoever was signalled may have stood still, and the guest with them: that was no silence
            if wakeup in ready or any(fd in streams and self._marks[streams[fd]].end is None for fd in ready):
                quiet_since = time.monotonic()
            elif timeout is not None and time.monotonic() - quiet_since >= timeout:
                break
            for fd in ready:
                if fd == self._watch.fileno():
                    self._check_loss()
                elif fd == wakeup:
                    self._pass_on(os.read(wakeup, 4096))
                elif self._witness and fd == self._witness.fileno():
                    self._pass_to_others(self._witness)
                elif fd == self._line.stdin:
                    self._send_wish()
                elif not self._read_stream(fd, streams[fd]):
                    self._selector.unregister(fd)
                    del streams[fd]

    def _over(self) -> bool:
        """Return whether all has arrived that the job printed.

        A daemon that left the job's session lives on and holds the streams; it may be silent or print for ever.  So
        neither their end nor silence tells, but the mark does: the far end writes it to each stream when the job has
        ended and its session is dead, and whatever those wrote was in the pipe before it.  A pipe, ssh's channel and
        our own pipe keep the order of one stream; between the two there is none (the mark of one may come while
        megabytes of the other are on their way), so it is waited for on both, and a slow guest loses nothing.  It may
        come on one alone: a stream that was left non-blocking has room for a daemon's words and none for ours, or a
        site's own far end is an older one.  Then the wait ends after `MARK_S` and `ON_THE_WAY`.  What a daemon prints
        later is lost, as it is bare when Torque has taken the files.
        """
        return all(marks.end for marks in self._marks) or self._after > ON_THE_WAY

    def _one_has_ended(self) -> bool:
        return any(marks.end for marks in self._marks)

    def _begun(self) -> bool:
        return all(marks.begun for marks in self._marks)

    def _check_loss(self) -> None:
        self._lost = self._lost or self._watch.read_loss()
        if self._lost is not None:
            self._line.kill()

    def _read_stream(self, fd: int, which: int) -> bool:
        data = os.read(fd, 1 << 18)
        marks = self._marks[which]
        if marks.end is None and self._one_has_ended():
            self._after += len(data)
        self._write((1, 2)[which], marks.feed(data) if data else marks.rest())
        return bool(data)

    def _pass_on(self, numbers: bytes) -> None:
        for number in numbers:
            if number in (CHECKPOINT, PARK) and self._record.detached:
                wish = shell_message.PARK if number == PARK else shell_message.CHECKPOINT
                shell_message.notify_worker(self._directory, wish)
                continue
            self.signals.append(number)
            if number in PAUSES:
                shell_message.notify_worker(self._directory)
            self._said += b"signal %d\n" % number

    def _pass_to_others(self, witness: Witness) -> None:
        numbers = witness.read()
        if numbers is None:
            self._selector.unregister(witness.fileno())
        for number in numbers or b"":
            self._said += b"others %d\n" % number

    def _offer(self) -> None:
        """Wait until what there is to say is taken; an early line may have ended, until the far end has spoken."""
        wanted = bool(self._said) and (not self._silent or self._begun())
        if wanted and not self._offered and not self._broken:
            self._selector.register(self._line.stdin, selectors.EVENT_WRITE)
        elif self._offered and not wanted:  # nothing to say now; the line stays open
            self._selector.unregister(self._line.stdin)
        self._offered = wanted and not self._broken

    def _send_wish(self) -> None:
        try:
            sent = os.write(self._line.stdin, self._said[: 1 << 16])
        except BlockingIOError:
            return
        except BrokenPipeError:  # ssh is gone: its output says so
            self._broken = True
            self._selector.unregister(self._line.stdin)
            self._offered = False
            return
        self._silent = False
        del self._said[:sent]

    def _ended(self) -> End:
        out, err = self._marks
        end = err.end or out.end
        if end is not None and end.kind != "broken":
            # the far end's shell is silent about a death by INT, and `exit 130` looks the same: what we sent tells
            interrupted = end == End("exit", str(128 + signal.SIGINT)) and signal.SIGINT in self.signals
            return End("signal", str(int(signal.SIGINT))) if interrupted else end
        if end is not None:
            raise VTorqueError("nothing was run", end.text)
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
        output = " ".join((err.before or out.before).decode(errors="replace").split())
        raise NotBegun(
            "nothing was run",
            f"no connection to {self._guest}: {output or 'it ended the session before the job began'}"[:600],
            # ssh itself would have said something
            "" if output else "an exit in a start file of the login shell (.bashrc, .profile) does that",
        )


def write_all(fd: int, data: bytes) -> None:
    """Write what a job prints.

    Raises:
        VTorqueError: nobody takes it.
    """
    try:
        lines.write_all(fd, data)
    except OSError as error:
        raise VTorqueError("the job was ended", f"its output cannot be written: {error.strerror}") from error


def _run_session(call: list[str], watch: LostWatch, environment: dict[str, str], directory: pathlib.Path) -> int:
    """The status of ssh; a guest that is lost ends it, and the terminal is again as it was.

    Who is stopped or goes on rings, and is not stopped by that signal itself: one that cannot be caught follows.

    Raises:
        GuestLost: see above.
    """
    before = termios.tcgetattr(0) if os.isatty(0) else None
    for number in PAUSES:
        signal.signal(number, lambda _number, _frame: shell_message.notify_worker(directory))
    with subprocess.Popen(call, env=environment, cwd="/", restore_signals=True) as process:
        lost = wait_for_end_or_loss(process.pid, watch)
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
    call = ssh_command.command(record, directory, ["session", place], terminal=True, x11=bool(display))
    # in the session of the terminal: the keyboard and the window's size are ssh's business
    code = _run_session(call, watch, ssh_command.environment(term, display), directory)
    if code != 255:
        return code if code >= 0 else 128 - code
    if (lost := watch.wait(WORD_S)) is not None:
        raise lost
    with contextlib.suppress(subprocess.TimeoutExpired):  # a guest that hangs has not said how the session ended
        asked = subprocess.run(
            ssh_command.command(record, directory, ["status", place]),
            env=ssh_command.environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        if b"exit 255" in asked.stdout.split(b"\n"):
            return 255
    raise ConnectionLost(f"the connection to guest {record.guests[0].name} was lost", "the session is over")
