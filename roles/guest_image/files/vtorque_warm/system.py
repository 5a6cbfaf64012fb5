# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This system: what is called of its kernel, its programs, and its files."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import pathlib
import shlex
import socket
import subprocess
import time
import typing as t

ARPHRD_ETHER, MS_BIND = 1, 4096
MAP_POPULATE = getattr(mmap, "MAP_POPULATE", 0x8000)
"""Python has it from release 3.10 on; the number of x86 and arm."""


class StepError(Exception):
    """A step could not be done: the guest is of no use."""


class System:
    """This guest; tests have another root, and calls that they watch.

    Args:
        root: where its files are.
    """

    def __init__(self, root: pathlib.Path = pathlib.Path("/")) -> None:
        self.root = root

    # what tests replace

    def ioctl(self, descriptor: int, request: int, argument: bytes) -> bytes:
        """Call ioctl(2)."""
        return fcntl.ioctl(descriptor, request, argument)

    def set_clock(self, nanoseconds: int) -> None:
        """Set the clock of the kernel."""
        time.clock_settime_ns(time.CLOCK_REALTIME, nanoseconds)

    def set_hostname(self, name: str) -> None:
        """Set the kernel's host name."""
        socket.sethostname(name)

    def bind(self, source: pathlib.Path, target: pathlib.Path) -> None:
        """Mount a file over another.

        Raises:
            OSError: the kernel refuses.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def run(self, *arguments: str, text: str = "", timeout_s: float = 120.0) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end; it may fail."""
        return subprocess.run(
            arguments,
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program."""
        quiet = subprocess.DEVNULL
        return subprocess.Popen(arguments, stdin=quiet, stdout=quiet, stderr=quiet)

    def take_memory(self, size_bytes: int) -> None:
        """Take memory, which the kernel fills with zeros, and give it back.

        Raises:
            OSError: there is not so much.
        """
        mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | MAP_POPULATE).close()

    # files

    def path(self, name: str) -> pathlib.Path:
        """Return where a file of the guest is, by its path from the root."""
        return self.root / name.lstrip("/")

    def write(self, name: str, content: bytes, mode: int) -> None:
        """Write a file, whole or not at all, with its mode from the first byte on."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.parent / f".{path.name}.vtorque-new"
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
        os.replace(new, path)

    def rewrite(self, name: str, content: bytes) -> None:
        """Write a file with the mode that the image has given it; a new one is only to be read."""
        path = self.path(name)
        self.write(name, content, path.stat().st_mode & 0o777 if path.exists() else 0o444)

    def environment(self, name: str) -> t.Dict[str, str]:
        """The variables of a file that the shell reads, each word of one assignment."""
        text = self.path(name).read_text(encoding="utf-8")
        pairs = (word.partition("=") for word in shlex.split(text, comments=True))
        return {key: value for key, equals, value in pairs if equals}

    def card(self) -> str:
        """The name of the one network card.

        Raises:
            StepError: there is none, or more than one.
        """
        places = self.path("sys/class/net")
        found = [
            place.name
            for place in sorted(places.iterdir())
            if (place / "device").exists() and (place / "type").read_text().strip() == str(ARPHRD_ETHER)
        ]
        if len(found) != 1:
            raise StepError(f"one network card is expected, and there are {len(found)}")
        return found[0]
