# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template's memory on its way into a guest: through a FIFO, behind another header, and without a copy of it.

The digest is taken on the way.  The last piece is held back until it is known: a state without its end never runs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import threading
import typing as t

from ...errors import VTorqueError

PIECE = 1 << 20
PIPE = 1 << 20
"""Bytes that wait for qemu: with the usual 64 KiB the two programs are switched twice as often."""
LOOK_S = 0.01
"""Between two looks whether somebody reads."""
END_S = 5.0


class MemoryFeed:
    """Writes into a FIFO while somebody reads it; a context manager, which takes the FIFO away.

    Args:
        fifo: where it is to be; its directory is root's.
        header: what comes first.
        memory: the file.
        begin: the first byte of it that is passed on.
        sha256: of the whole file.

    Raises:
        OSError: the file is not there, or the FIFO cannot be made.
    """

    def __init__(self, fifo: pathlib.Path, header: bytes, memory: pathlib.Path, begin: int, sha256: str) -> None:
        self.fifo = fifo
        self._header, self._begin, self._sha256 = header, begin, sha256
        self._over = threading.Event()
        self._why = ""
        self._memory = os.open(memory, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fifo.unlink(missing_ok=True)
            os.mkfifo(fifo, 0o600)
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
        self.fifo.unlink(missing_ok=True)

    def check(self) -> None:
        """See that all of it was passed on.

        Raises:
            VTorqueError: it was not; says why.
        """
        self._thread.join(END_S)
        if self._thread.is_alive():
            raise VTorqueError(f"memory {self.fifo}", "is still being read")
        if self._why:
            raise VTorqueError("the template's memory", self._why)

    @property
    def why(self) -> str:
        """Why it was not passed on, as far as is known; "" where nothing is."""
        return self._why

    def _run(self) -> None:
        try:
            with contextlib.closing(_Descriptor(self._memory)):
                pipe = self._open()
                if pipe is not None:
                    with contextlib.closing(_Descriptor(pipe)):
                        self._feed(pipe)
        except OSError as error:
            self._why = self._why or f"was not taken: {error.strerror or error}"

    def _open(self) -> int | None:
        while not self._over.wait(LOOK_S):
            try:
                pipe = os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                continue
            with contextlib.suppress(OSError):  # a system may allow less
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
            os.set_blocking(pipe, True)
            return pipe
        self._why = "was asked for by nobody"
        return None

    def _feed(self, pipe: int) -> None:
        digest, held = hashlib.sha256(), self._header
        at = 0
        while piece := os.pread(self._memory, PIECE, at):
            digest.update(piece)
            passed = piece[max(0, self._begin - at) :]
            at += len(piece)
            if passed:
                _write(pipe, held)
                held = passed
        if digest.hexdigest() != self._sha256:
            self._why = f"is not what its record says: {at} bytes have another digest"
            return
        _write(pipe, held)


class _Descriptor:
    def __init__(self, number: int) -> None:
        self._number = number

    def close(self) -> None:
        os.close(self._number)


def _write(pipe: int, data: bytes) -> None:
    rest: t.Any = memoryview(data)
    while rest:
        rest = rest[os.write(pipe, rest) :]
