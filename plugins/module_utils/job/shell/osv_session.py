# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job in a guest of OSv: started over its REST API, heard on its console, where our launcher tells how it ended.

The API starts a program and says when its thread is over; what it printed and what it returned it does not say.
In an image without the launcher the kernel itself reports what was returned (`kernel_report.py`).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import select
import signal
import socket
import time
import typing as t

from ...errors import VTorqueError
from ...guest_kinds import OSV_LAUNCHER
from ...osv_rest import OsvFault, Rest
from ...state import shell_message
from ...state.layout import CONSOLE
from ...state.records import ReadyRecord
from ..request import osv_script
from .job_signals import PAUSES, caught
from .kernel_report import KernelReport, is_verbose
from .lost_guest import LostWatch
from .session import WORD_S, ConnectionLost, End, Marks, write_all

if t.TYPE_CHECKING:
    from ..batch.own_job import JobScript

ASK_S = 5.0
"""Between two questions whether the program is over: the console says it sooner, unless it never will."""
PATIENCE_S = 15.0
"""For the launcher's last word, once the API says that its thread is over."""
HARMLESS = frozenset(
    {
        signal.SIGCONT,
        signal.SIGURG,
        signal.SIGWINCH,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
    }
)
"""What does not end a process by itself; a guest of OSv hears of no signal."""
QUIET_S = 0.5
"""So long the console is heard after the API says that a program is over, whose end the kernel alone reports."""
ASK_KERNEL_S = 1.0
"""Between two questions then: of a status of 0 the console says nothing."""
SOON_S = 0.2
"""Until the next question, when the kernel has reported a status: the thread is about to end."""
NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


def read_program(script: JobScript) -> tuple[str, ...]:
    """Return the one program that a job in OSv is, with its arguments.

    Args:
        script: of the job; its first line ends with what the user adds to the program's arguments.

    Raises:
        UserFault: it is none that can be run without a shell.
    """
    return osv_script.read(script.content, script.line.partition(b"\n")[0][len(script.path) :])


def variables_for(variables: t.Mapping[bytes, bytes], user: str) -> dict[bytes, bytes]:
    """What of the job's variables OSv gets.

    Its API knows no empty value; a name must be one; `LD_*` would change how OSv itself finds its libraries.

    Args:
        variables: as a guest of the other kind would get them.
        user: whose job it is, which no login says there.
    """
    good = {
        name: value
        for name, value in variables.items()
        if NAME.fullmatch(name) and value and not name.startswith(b"LD_")
    }
    return {**good, b"USER": user.encode(), b"LOGNAME": user.encode()}


def describe_dropped(variables: t.Mapping[bytes, bytes], given: t.Mapping[bytes, bytes]) -> str:
    """What it does not get, for the job's log; "": nothing."""
    names = [name.decode(errors="replace") for name in variables if name not in given]
    return f"dropped, as OSv cannot have them (empty, LD_*, or of no usable name): {' '.join(names)}" if names else ""


class Run:
    """One program in one guest.

    Args:
        record: names the guest.
        directory: of the start; holds the way to the console.
        watch: hears when the guest is lost.
        rest: the guest's API.
        write: takes what the program prints; None: standard output.
    """

    def __init__(
        self,
        record: ReadyRecord,
        directory: pathlib.Path,
        watch: LostWatch,
        *,
        rest: Rest | None = None,
        write: t.Callable[[int, bytes], None] | None = None,
        ask_s: float = ASK_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        guest = record.guests[0]
        self._guest = f"guest {guest.name} ({guest.address})"
        self._path = directory / CONSOLE
        self._watch = watch
        self._rest = rest or Rest(guest.address)
        self._write = write or write_all
        self._ask_s, self._patience_s = ask_s, patience_s
        self._token = os.urandom(16).hex()
        self._marks = Marks(self._token)
        self._report: KernelReport | None = None
        self._over = False
        self._lines = LineEnds()
        self._thread = ""

    def run(self, argv: t.Sequence[str], variables: t.Mapping[bytes, bytes]) -> End:
        """Start the program, and hear it until it is over.

        Args:
            argv: the program and its arguments.
            variables: its environment.

        Returns:
            How it ended, or by which signal the batch system ended it.

        Raises:
            VTorqueError: nothing was run.
            GuestLost: the guest was lost.
            ConnectionLost: it is over, and nobody said how it ended.
        """
        with caught() as wakeup, self._console() as console:
            try:
                for name, value in variables.items():
                    self._rest.set_variable(name, value)
                self._start(argv)
            except OsvFault as fault:
                raise self._lost(VTorqueError("nothing was run", f"{fault.what}: {fault.why}")) from None
            number = self._listen(console, wakeup)
        return End("signal", str(number)) if number else self._ended()

    def _start(self, argv: t.Sequence[str]) -> None:
        """Start the program by the launcher, or by itself where there is none and the kernel reports its end."""
        try:
            self._thread = self._rest.start([OSV_LAUNCHER, "run", self._token, *argv])
        except OsvFault as fault:
            if not fault.status or not self._kernel_reports():
                raise
            self._report = KernelReport(argv[0])
            self._ask_s, self._patience_s = min(self._ask_s, ASK_KERNEL_S), min(self._patience_s, QUIET_S)
            self._thread = self._rest.start(argv)

    def _kernel_reports(self) -> bool:
        with contextlib.suppress(OsvFault):
            return is_verbose(self._rest.command_line())
        return False

    @contextlib.contextmanager
    def _console(self) -> t.Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as console:
            try:
                console.connect(str(self._path.readlink()))
            except OSError as error:
                raise self._lost(VTorqueError("nothing was run", f"the console of {self._guest}: {error}")) from None
            yield console

    def _listen(self, console: socket.socket, wakeup: int) -> int:
        """Until the program is over, or the batch system ends it: by which signal, else 0."""
        poll = select.poll()
        for fd in (console.fileno(), wakeup, self._watch.fileno()):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        over: float | None = None
        ask_at = time.monotonic() + self._ask_s
        while self._marks.end is None:
            heard = {fd for fd, _events in poll.poll(max(0.0, ask_at - time.monotonic()) * 1000 + 1)}
            if console.fileno() in heard and not self._read_console(console):
                return 0
            if wakeup in heard and (number := _deadly(self._notify_worker(os.read(wakeup, 4096)))):
                return number
            if self._watch.fileno() in heard and (lost := self._watch.read_loss()) is not None:
                self._drain(console)
                if self._marks.end is None:
                    raise lost
            ask_at = min(ask_at, self._soon())
            if time.monotonic() >= ask_at:
                over = over or (time.monotonic() if self._is_over() else None)
                ask_at = time.monotonic() + self._ask_s
            if over is not None and time.monotonic() - over >= self._patience_s:
                self._over = True
                return 0
        return 0

    def _soon(self) -> float:
        reported = self._report is not None and self._report.status is not None
        return time.monotonic() + SOON_S if reported else float("inf")

    def _notify_worker(self, numbers: bytes) -> bytes:
        """Ring for those signals with which batch systems begin and end a suspension."""
        if PAUSES.intersection(numbers):
            shell_message.notify_worker(self._path.parent)
        return numbers

    def _read_console(self, console: socket.socket) -> bool:
        try:
            data = console.recv(1 << 16)
        except OSError:
            data = b""
        if self._report is not None:
            self._write(1, self._report.feed(self._lines.feed(data)))
            if not data:
                self._write(1, self._report.rest())
            return bool(data)
        for line in self._lines.feed(data).splitlines(keepends=True):
            if self._marks.end is None:  # what comes behind the launcher's last word is the guest's own
                self._write(1, self._marks.feed(line))
        if not data:
            self._write(1, self._marks.rest())
        return bool(data)

    def _drain(self, console: socket.socket) -> None:
        """What the guest wrote before it was lost."""
        while select.select([console], [], [], 0)[0] and self._read_console(console):
            pass

    def _is_over(self) -> bool:
        """Return whether the API says that the program is over.

        One that does not answer may be busy with the program.
        """
        with contextlib.suppress(OsvFault):
            return self._rest.finished(self._thread)
        return False

    def _ended(self) -> End:
        end = self._marks.end
        if self._report is not None:
            if not self._over:
                raise self._lost(
                    ConnectionLost(f"the end of the job in {self._guest} is not known", "its console ended")
                )
            self._write(1, self._report.rest())
            end = End("exit", str(self._report.status or 0))
        if end is None:
            why = "the program is over, and the launcher has not said how: a program in OSv must return from main"
            raise self._lost(ConnectionLost(f"the end of the job in {self._guest} is not known", why))
        if end.kind == "broken":
            raise VTorqueError("nothing was run", end.text)
        if end.kind != "exit" or not re.fullmatch("[0-9]{1,3}", end.text) or end.number > 255:
            raise ConnectionLost(f"the end of the job in {self._guest} is not known", f"it said {str(end)[:80]!a}")
        return end

    def _lost(self, otherwise: VTorqueError) -> VTorqueError:
        """The guest's loss explains more, when that is what happened."""
        lost = self._watch.wait(WORD_S)
        return otherwise if lost is None else lost


class LineEnds:
    """OSv's console ends lines as terminals do (CR LF); what a job prints ends them as everywhere else."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """All of it but for a CR at its very end, which waits for what follows."""
        data = self._held + data
        self._held = b"\r" if data.endswith(b"\r") else b""
        return data[: len(data) - len(self._held)].replace(b"\r\n", b"\n")


def _deadly(numbers: bytes) -> int:
    """The first of these signals that ends a job; 0: none does."""
    return next((number for number in numbers if number not in HARMLESS), 0)
