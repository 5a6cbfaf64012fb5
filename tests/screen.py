# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A terminal as a person sees it: a program runs on a pseudo terminal, and what it writes is drawn by an emulator.

What stays on a screen differs from what was written to it: lines are drawn over, wrapped and scrolled away.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import termios
import time
import typing as t

import pyte

SIZE = (24, 80)
"""Rows and columns of a terminal that nobody has made larger."""
OF_TERMINALS = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "COLORTERM"}
"""Variables of the caller's own terminal."""
PIECES = re.compile(rb"(?<=\n)|(?=\r(?!\n))")
"""Ends of lines, and returns to the beginning of one."""
MOST_FRAMES = 10_000


class Screen:
    """What is on a terminal.

    Args:
        size: rows and columns.

    Attributes:
        frames: each text that was on the screen when a line was complete, or was to be drawn over; the first one first.
    """

    def __init__(self, size: tuple[int, int] = SIZE) -> None:
        rows, columns = size
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.frames: collections.deque[str] = collections.deque(maxlen=MOST_FRAMES)

    def feed(self, written: bytes) -> None:
        """Draw what a program has written.

        Args:
            written: bytes in the order of writing; a piece may end anywhere.
        """
        # what is cut in the midst of a line, as it was read, is nothing that somebody sees
        for piece in PIECES.split(written):
            if piece.startswith(b"\r"):
                self._add_frame()
            self._stream.feed(piece)
            if piece.endswith(b"\n"):
                self._add_frame()

    def _add_frame(self) -> None:
        if not self.frames or self.frames[-1] != self.text:
            self.frames.append(self.text)

    @property
    def lines(self) -> list[str]:
        """Return the rows without what is empty at their ends, and without empty rows at the end."""
        found = [line.rstrip() for line in self._screen.display]
        while found and not found[-1]:
            found.pop()
        return found

    @property
    def text(self) -> str:
        """Return the rows as one text."""
        return "\n".join(self.lines)

    def styles_of(self, text: str) -> set[tuple[str, bool]]:
        """Return the colours of a text on the screen, each with whether it is bold.

        Args:
            text: on one row.

        Raises:
            ValueError: it is not on the screen.
        """
        for number, line in enumerate(self._screen.display):
            if (begin := line.find(text)) >= 0:
                row = self._screen.buffer[number]
                return {(row[at].fg, row[at].bold) for at in range(begin, begin + len(text))}
        raise ValueError(f"{text!r} is not on the screen: {self.text}")


class OnTerminal:
    """A program on a terminal of its own.

    Args:
        arguments: of the program, its name first.
        size: rows and columns of the terminal.
        how: further arguments of `subprocess.Popen`.

    Attributes:
        seen: everything that was read, as text.
        screen: what is on the terminal.
    """

    def __init__(self, arguments: t.Sequence[str], size: tuple[int, int] = SIZE, **how: t.Any) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.process = subprocess.Popen(
            arguments, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, **how
        )
        os.close(slave)
        self.seen = ""
        self.screen = Screen(size)

    def expect(self, text: str, timeout_s: float = 900) -> None:
        """Read until the text was written.

        Raises:
            AssertionError: it was not.
        """
        self._read_until(lambda: text in self.seen, text, timeout_s)

    def expect_frame(self, text: str, timeout_s: float = 900) -> None:
        """Read until the text was on the screen, if only for a moment.

        Raises:
            AssertionError: it was not.
        """
        self._read_until(
            lambda: any(text in frame for frame in (*self.screen.frames, self.screen.text)), text, timeout_s
        )

    def _read_until(self, is_there: t.Callable[[], bool], text: str, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not is_there():
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not come; seen: {self.seen!r}"
            if select.select([self.master], [], [], left)[0]:
                assert self._read(), f"the terminal closed before {text!r}; seen: {self.seen!r}"

    def _read(self) -> bool:
        chunk = b""
        with contextlib.suppress(OSError):  # EIO: the other side of the terminal is gone
            chunk = os.read(self.master, 65536)
        self.seen += chunk.decode(errors="replace")
        self.screen.feed(chunk)
        return bool(chunk)

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self.master, line.encode() + b"\n")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self.master, b"\x03")

    def close(self) -> int:
        """Read until the terminal closes, and return the program's exit status."""
        while self._read():
            pass
        os.close(self.master)
        return self.process.wait(timeout=900)


def read_screen(
    arguments: t.Sequence[str], size: tuple[int, int] = SIZE, *, checkout: pathlib.Path, **environment: str
) -> tuple[int, Screen]:
    """Return the exit status of a program, and what it has left on a terminal.

    Args:
        arguments: of the program, its name first.
        size: rows and columns of the terminal.
        checkout: where it runs.
        environment: of the program, besides that of the caller.
    """
    usual = {name: value for name, value in os.environ.items() if name not in OF_TERMINALS}
    terminal = OnTerminal(arguments, size, cwd=checkout, env={**usual, "TERM": "xterm", **environment})
    return terminal.close(), terminal.screen
