# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template's memory on its way into a guest: through a FIFO, behind another header, and without a copy of it.

The digest is taken on the way.  The last piece is held back until it is known: a state without its end never runs.

Each opening reads from the beginning, since libvirt from 11.2 on opens a saved state twice: once for its header
(`qemuSaveImageGetMetadata`), and once for header and memory (`qemuSaveImageOpen`).  Older ones open it once.  A FIFO
serves one opening: before its reader gets a byte, another FIFO has its name, so that no two readers share one.
An opening after the end, or too late, reads the end at once, and does not wait for ever.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import select
import threading
import typing as t

from ...errors import VTorqueError
from ...system.clock import Deadline

PIECE = 1 << 20
PIPE = 1 << 20
"""Bytes that wait for qemu: with the usual 64 KiB the two programs are switched twice as often.

A saved state is longer, so that a reader of its header alone never has all of it.
"""
LOOK_S = 0.01
"""Between two looks whether somebody reads."""
LOOK_AGAIN_S = 1.0
"""Between two looks at the deadline while nothing is read."""
END_S = 5.0


class MemoryFeed:
    """Writes header and memory to each reader of a FIFO, until one has all; a context manager, which removes the FIFO.

    Args:
        fifo: where it is to be; its directory is root's.
        header: what comes first.
        memory: the file.
        begin: the first byte of it that is passed on.
        sha256: of the whole file.
        deadline: when all of it must have been read.

    Raises:
        OSError: the file is not there, or the FIFO cannot be made.
    """

    def __init__(
        self, fifo: pathlib.Path, header: bytes, memory: pathlib.Path, begin: int, sha256: str, deadline: Deadline
    ) -> None:
        self.fifo, self._next = fifo, fifo.with_name(f"{fifo.name}.next")
        self._header, self._begin, self._sha256, self._deadline = header, begin, sha256, deadline
        self._fed, self._over = threading.Event(), threading.Event()
        self._why = ""
        self._memory = os.open(memory, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._place_fifo()
        except BaseException:
            os.close(self._memory)
            raise
        self._thread = threading.Thread(target=self._run, daemon=True, name="memory")

    def __enter__(self) -> MemoryFeed:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join(END_S)
        for path in (self.fifo, self._next):
            path.unlink(missing_ok=True)

    def check(self) -> None:
        """See that all of it was passed on.

        Raises:
            VTorqueError: it was not; says why.
        """
        if not self._fed.wait(END_S):
            raise VTorqueError(f"memory {self.fifo}", "was not read to its end")
        if self._why:
            raise VTorqueError("the template's memory", self._why)

    @property
    def why(self) -> str:
        """Why it was not passed on, as far as is known; "" where nothing is."""
        return self._why

    def _run(self) -> None:
        try:
            with contextlib.closing(_Descriptor(self._memory)):
                while not self._fed.is_set() and (pipe := self._open()) is not None:
                    # a reader that wants no more has read a header, or says itself what is wrong
                    with contextlib.closing(_Descriptor(pipe)), contextlib.suppress(BrokenPipeError):
                        self._place_fifo()
                        self._feed(pipe)
                        self._fed.set()
        except OSError as error:
            self._why = self._why or f"was not taken: {error.strerror or error}"
        finally:
            self._fed.set()
        with contextlib.suppress(OSError):
            while not self._over.wait(LOOK_S):
                if (pipe := self._open_now()) is not None:
                    os.close(pipe)

    def _open(self) -> int | None:
        while not self._over.wait(LOOK_S) and not self._deadline.passed:
            if (pipe := self._open_now()) is not None:
                with contextlib.suppress(OSError):  # a system may allow less
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
                return pipe
        self._why = "was read to its end by nobody"
        return None

    def _place_fifo(self) -> None:
        """Give the next reader a FIFO of its own."""
        self._next.unlink(missing_ok=True)
        os.mkfifo(self._next, 0o600)
        self._next.rename(self.fifo)

    def _open_now(self) -> int | None:
        """Open the FIFO where somebody reads it, or waits for that; None: nobody does."""
        try:
            return os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        return None

    def _feed(self, pipe: int) -> None:
        digest, held = hashlib.sha256(), self._header
        at = 0
        while piece := os.pread(self._memory, PIECE, at):
            digest.update(piece)
            passed = piece[max(0, self._begin - at) :]
            at += len(piece)
            if passed:
                self._write(pipe, held)
                held = passed
        if digest.hexdigest() != self._sha256:
            self._why = f"is not what its record says: {at} bytes have another digest"
            return
        self._write(pipe, held)

    def _write(self, pipe: int, data: bytes) -> None:
        rest: t.Any = memoryview(data)
        ready = select.poll()
        ready.register(pipe, select.POLLOUT)
        while rest:
            try:
                rest = rest[os.write(pipe, rest) :]
            except BlockingIOError:
                if self._deadline.passed:
                    raise TimeoutError("it was not read in time") from None
                ready.poll(self._deadline.left_s(LOOK_AGAIN_S) * 1000)


class _Descriptor:
    def __init__(self, number: int) -> None:
        self._number = number

    def close(self) -> None:
        os.close(self._number)
