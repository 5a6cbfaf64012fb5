# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job's connection to its guest, without one: what the guest does not say."""

from __future__ import annotations

import os
import pathlib
import select
import signal
import subprocess
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell import session
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.lost_guest import LostWatch
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_message
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import ReadyGuest, ReadyRecord
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

GUEST = ReadyGuest(0, "v1-1", "n1", "10.0.0.1")
RECORD = ReadyRecord("1.th", 1, "alice", ProcessId(1, 1), "boot", (GUEST,), "")


def test_guest_that_hangs_after_a_session_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: t.Sequence[str], **_how: object) -> t.NoReturn:
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(session, "_run_session", lambda *_words: 255)
    monkeypatch.setattr(session, "WORD_S", 0.0)
    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(session.ConnectionLost):
        session.session(RECORD, pathlib.Path("/run"), "/tmp/vtorque.1", LostWatch(pathlib.Path("/run")), term="xterm")


class Silent:
    """A connection whose far end says nothing before the job is stopped, and then that it has ended."""

    early = False
    token = "0123456789abcdef"

    def __init__(self, bell: shell_message.NotificationFifo) -> None:
        (self.out, self._out), (self.err, self._err) = os.pipe(), os.pipe()
        self._said, self.stdin = os.pipe()
        self._bell = bell
        self.heard = b""
        self.notified = 0

    def play(self) -> None:
        """Stop the shell, let it go on, and end when it has rung for both."""
        numbers = (signal.SIGTSTP, signal.SIGCONT)
        while signal.SIG_DFL in map(signal.getsignal, numbers):
            """It does not listen yet."""
        try:
            for number in numbers:
                os.kill(os.getpid(), number)
                if not select.select(self._bell.filenos(), [], [], 60)[0]:
                    return
                self._bell.read_all()
                self.notified += 1
                while f"signal {int(number)}\n".encode() not in self.heard:
                    self.heard += os.read(self._said, 4096)
        finally:  # whatever it has not heard, the other side must not wait for it
            for stream in (self._out, self._err):
                os.write(stream, f"vtorque-{self.token}-begin\nvtorque-{self.token}-end exit 0\n".encode())

    def kill(self) -> None:
        """Never asked for."""

    def close(self) -> None:
        for fd in (self.out, self._out, self.err, self._err, self._said, self.stdin):
            os.close(fd)


def test_stop_and_go_on_ring_and_reach_the_guest(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell_message.offer(tmp_path, os.getuid())
    bell = shell_message.NotificationFifo(tmp_path)
    silent = Silent(bell)
    monkeypatch.setattr(session.line, "OwnLine", lambda _call: silent)
    (tmp_path / "ready.json").touch()
    far_end = threading.Thread(target=silent.play)
    with LostWatch(tmp_path) as watch:
        talk = session.Conversation(RECORD, tmp_path, "batch", b"", watch, lambda _fd, _data: None)
        far_end.start()
        assert talk.run() == session.End("exit", "0")
    far_end.join()
    assert silent.notified == 2
    bell.close()


class HalfEnded:
    """A connection whose far end has ended on one stream, when the job is suspended; the rest comes afterwards."""

    early = False
    token = "0123456789abcdef"

    def __init__(self) -> None:
        (self.out, self._out), (self.err, self._err) = os.pipe(), os.pipe()
        self._said, self.stdin = os.pipe()
        self.end(self._err, "")

    def end(self, stream: int, own: str) -> None:
        os.write(stream, f"vtorque-{self.token}-begin\n{own}vtorque-{self.token}-end exit 7\n".encode())

    def resume(self) -> None:
        self.end(self._out, "the rest\n")

    def close(self) -> None:
        for descriptor in (self.out, self._out, self.err, self._err, self._said, self.stdin):
            os.close(descriptor)


def test_time_in_suspension_is_no_silence_of_the_guest(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line, written, clock = HalfEnded(), bytearray(), [0.0]
    wakeup, waking = os.pipe()

    def write(_fd: int, data: bytes) -> None:
        written.extend(data)
        if not clock[0]:  # one stream has ended; the job stands still for long
            clock[0] = 10 * session.MARK_S
            os.write(waking, bytes([signal.SIGCONT]))

    monkeypatch.setattr(session.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(session.shell_message, "notify_worker", lambda _directory: line.resume())
    with LostWatch(tmp_path) as watch:
        talk = session.Conversation(RECORD, tmp_path, "batch", b"", watch, write)
        talk._talk(line, wakeup)  # type: ignore[arg-type]
    assert bytes(written) == b"the rest\n"
    os.close(wakeup)
    os.close(waking)
