# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest's serial console says: its ready line, how far it came, and its last words."""

from __future__ import annotations

import collections
import os
import pathlib
import re
import stat
import typing as t

from ...effects import leaves_nothing
from ...errors import VTorqueError

TAIL_LINES = 12
MAX_LINE = 4096
CHUNK = 1 << 16
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
_STAGES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("no root file system was found", re.compile(r"(VFS: Unable to mount root|ALERT! .* does not exist)")),
    ("cloud-init has finished", re.compile(r"Cloud-init .*finished at")),
    ("cloud-init is at its last stage", re.compile(r"Cloud-init .* running 'modules:final'")),
    ("cloud-init is at its modules", re.compile(r"Cloud-init .* running 'modules:config'")),
    ("cloud-init has the network", re.compile(r"Cloud-init .* running 'init'")),
    ("cloud-init has begun", re.compile(r"Cloud-init .* running 'init-local'")),
    ("the system is starting", re.compile(r"(systemd\[1\]:|Welcome to )")),
    ("the kernel is running", re.compile(r"Linux version ")),
)
"""Furthest first; what was seen last is told."""
_PANIC = re.compile(r"Kernel panic - not syncing.*")
_OSV_ADDRESS = re.compile(r"eth[0-9]: ([0-9.]{7,15})")
"""The whole line that OSv's kernel prints when it has its lease (core/dhcp.cc)."""


def plain(text: str) -> str:
    """Text of a guest, harmless on a terminal: no escape sequences, no control characters."""
    return "".join(c if c.isprintable() else "" if c in "\r\n" else " " for c in _ESCAPES.sub("", text)).strip()


@leaves_nothing
class Console:
    """Reads a console's file as it grows.

    The file may be replaced meanwhile: virtlogd renames a console of 2 MiB and begins a new one.

    Args:
        path: the file; its directory is root's alone.
        token: made for this guest, so that no earlier text and no other guest counts.
    """

    def __init__(self, path: pathlib.Path, token: str) -> None:
        self.path = path
        self._ready = re.compile(rf"vtorque-ready {re.escape(token)} ([0-9A-Fa-f.:]{{2,45}})(?![^\s])")
        self._failed = re.compile(rf"vtorque-failed {re.escape(token)} (.*)")
        self._fd: int | None = None
        self._rest = b""
        self.tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        self.bytes_seen = 0
        self.stage = ""
        self.ready_address: str | None = None
        self.kernel_address = ""
        self.failed: str | None = None
        self.panic: str | None = None

    def read(self) -> int:
        """Read what is new; how many bytes that was.

        Raises:
            VTorqueError: the console is not a regular file.
        """
        count = 0
        for _file in range(2):
            if self._fd is None and not self._open():
                break
            while data := os.read(t.cast(int, self._fd), CHUNK):
                count += len(data)
                self._take(data)
            if not self._replaced():
                break
            self.close()
        self.bytes_seen += count
        return count

    def _open(self) -> bool:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise VTorqueError(f"console {self.path}", "is not a regular file")
        self._fd = fd
        return True

    def _replaced(self) -> bool:
        mine = os.fstat(t.cast(int, self._fd))
        try:
            now = self.path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) != (now.st_dev, now.st_ino)

    def _take(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        # a guest that never ends its line must not fill our memory
        self._rest = rest[-MAX_LINE:]
        for raw in lines:
            line = plain(raw[-MAX_LINE:].decode("utf-8", "replace"))
            if line:
                self._line(line)

    def _line(self, line: str) -> None:
        self.tail.append(line[:300])
        if found := self._ready.search(line):
            self.ready_address = found[1]
        elif found := self._failed.search(line):
            self.failed = found[1][:500] or "without words"
        elif found := _PANIC.search(line):
            # the kernel repeats it after its trace
            self.panic = self.panic or found[0][:300]
        elif found := _OSV_ADDRESS.fullmatch(line):
            self.kernel_address = found[1]
        else:
            stage = next((name for name, pattern in _STAGES if pattern.search(line)), "")
            self.stage = stage or self.stage

    @property
    def named_address(self) -> str:
        """Where the guest says that it is; an address without its token proves nothing.  "": nowhere."""
        return self.ready_address or self.kernel_address

    def describe(self) -> str:
        """How far the guest came, in words."""
        if self.bytes_seen == 0:
            return "its console is silent"
        return f"its console wrote {self.bytes_seen} bytes; {self.stage or 'nothing of a system was recognised in it'}"

    def last_output(self) -> str:
        """The last lines of the console, in one line."""
        return " | ".join([*self.tail, *filter(None, [plain(self._rest.decode("utf-8", "replace"))[:300]])])[-1500:]

    def describe_end(self) -> str:
        """Return a sentence with the last lines of the console; "" where it is silent."""
        last_lines = self.last_output()
        return f"last lines of the console: {last_lines}" if last_lines else ""

    def close(self) -> None:
        """Close the file; the next `read` opens what is there then."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
