# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run programs of a hook: each with a deadline, in a group of its own, and gone when it returns.

A unit of systemd would not die with the hook when Torque kills it, and not every node has systemd
(docs/adr/0020-no-systemd-units-for-jobs.md).  A call takes 4 ms besides the program.  This module goes when every
supported MOM hands its hooks a unit of systemd's of their own, with all that they start.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import typing as t

from ...time_budget import PROGRAM_GRACE_S, PROGRAM_ORPHANS_S, UNWANTED_ASK_S
from ..clock import Deadline
from . import prctl
from .environment import ROOT_ENVIRONMENT
from .processes import ProcessHandle

TASKS = pathlib.Path("/proc/self/task")
Unwanted = t.Callable[[], bool]
"""Whether nobody wants what a program does any more."""


def run(
    command: t.Sequence[str | pathlib.Path],
    *,
    timeout_s: float,
    log: t.IO[bytes],
    environment: t.Mapping[str, str] | None = None,
    stdin: bytes = b"",
    capture: bool = False,
    unwanted: Unwanted | None = None,
) -> tuple[int | None, bytes]:
    """Run a program to its end, or to its deadline.

    It stays in the session of the hook, so that it dies with it when Torque kills the hook, but is a process group
    of its own, so that what it started dies with it here.  What left that group (each of Ansible's workers, with its
    ssh, is a session of its own) is ended too when the program failed or was late.

    Args:
        timeout_s: seconds; none left means that it is not started.
        log: where its output goes.
        stdin: its standard input.
        capture: return its standard output instead.
        unwanted: is asked every few seconds, and ends it as at its deadline; the standard input must fit into a pipe
            then (64 KiB), for what was not written at the first question would not be.

    Returns:
        Its exit status (negative for a signal), None when it was ended at its deadline; and its standard output.
    """
    if timeout_s <= 0:
        return None, b""
    with _adopting_orphans():
        return _run(command, timeout_s, log, dict(environment or ROOT_ENVIRONMENT), stdin, capture, unwanted)


def _run(
    command: t.Sequence[str | pathlib.Path],
    timeout_s: float,
    log: t.IO[bytes],
    environment: dict[str, str],
    stdin: bytes,
    capture: bool,
    unwanted: Unwanted | None,
) -> tuple[int | None, bytes]:
    others = _children()
    process = subprocess.Popen(
        command,
        env=environment,
        cwd="/",
        process_group=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if capture else log,
        stderr=log,
    )
    return _await(process, others, timeout_s, stdin, unwanted)


def begin(
    command: t.Sequence[str | pathlib.Path], environment: t.Mapping[str, str], inherited: t.Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program that waits for its standard input; `finish` or `abandon` sees to its end.

    Args:
        inherited: descriptors that it gets under their numbers.
    """
    return subprocess.Popen(
        command,
        env=dict(environment),
        cwd="/",
        process_group=0,
        pass_fds=inherited,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def finish(
    process: subprocess.Popen[bytes], *, timeout_s: float, stdin: bytes, unwanted: Unwanted | None = None
) -> int | None:
    """`run`, for a program that was begun.

    Args:
        process: as `begin` returned it.
        timeout_s: seconds; none left means that it is ended at once.
        stdin: its standard input.
        unwanted: see `run`.

    Returns:
        Its exit status (negative for a signal), None when it was ended at its deadline.
    """
    if timeout_s <= 0:
        abandon(process)
        return None
    with _adopting_orphans():
        return _await(process, _children() - {process.pid}, timeout_s, stdin, unwanted)[0]


def abandon(process: subprocess.Popen[bytes]) -> None:
    """End a program that was begun and has nothing to do."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _await(
    process: subprocess.Popen[bytes],
    others: set[int],
    timeout_s: float,
    stdin: bytes,
    unwanted: Unwanted | None,
) -> tuple[int | None, bytes]:
    code: int | None = None
    out = b""
    try:
        out = _communicate(process, timeout_s, stdin, unwanted)
        code = process.returncode
    except subprocess.TimeoutExpired:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=PROGRAM_GRACE_S)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if code != 0:
            _end_orphans(others)
    return code, out or b""


def _communicate(process: subprocess.Popen[bytes], timeout_s: float, stdin: bytes, unwanted: Unwanted | None) -> bytes:
    """The program's standard output; raises TimeoutExpired at the deadline, or when nobody wants it any more."""
    until, given = Deadline.after(timeout_s), stdin or None
    while True:
        try:
            left_s = timeout_s if unwanted is None else min(until.left_s(), UNWANTED_ASK_S)
            return process.communicate(given, timeout=left_s)[0] or b""
        except subprocess.TimeoutExpired:
            given = None  # it is in the pipe
            if unwanted is None or until.passed or unwanted():
                raise


@contextlib.contextmanager
def _adopting_orphans() -> t.Iterator[None]:
    """Meanwhile, what descends from this process and loses its parent becomes a child of this one.

    Only meanwhile: who else runs in this process reaps no strangers' children.
    """
    before = prctl.is_subreaper()
    prctl.set_subreaper(True)
    try:
        yield
    finally:
        prctl.set_subreaper(before)


def _children() -> set[int]:
    found: set[int] = set()
    for task in TASKS.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that ended, a kernel that does not say
            found |= set(map(int, (task / "children").read_text(encoding="ascii").split()))
    return found


def _end_orphans(others: set[int]) -> None:
    """End every child but `others`, and their children, which then become ours."""
    until = Deadline.after(PROGRAM_ORPHANS_S)
    while (orphans := _children() - others) and not until.passed:
        for pid in orphans:
            with ProcessHandle(pid) as orphan:
                orphan.kill(until)
                os.waitpid(pid, os.WNOHANG)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def program(module: str) -> list[str]:
    """The call of a Python module with the interpreter of this one, and without the caller's settings."""
    return [sys.executable, "-I", "-m", module]
