# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs in processes of their own that are forked from the tests' process, which has loaded what they import.

A new interpreter that imports a program of ours takes 0.2 to 0.4 s of a processor, a fork 0.02 s.  What an interpreter
does before the program's first line is for tests of launchers, of late imports and of the environment.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
import typing as t

MOST_DESCRIPTORS = 4096


def run_forked(
    program: str, *arguments: str, env: dict[str, str] | None = None, launched: bool = False, **options: t.Any
) -> subprocess.CompletedProcess[t.Any]:
    """Run the text of a program as `python -c` does, and return how it ended.

    Args:
        program: its text.
        arguments: `sys.argv[1:]`.
        env: its whole environment; None: that of the tests.
        launched: whether it is the child of a process that waits for it, as a shell would.
        options: of `subprocess.run`.
    """
    run_there = functools.partial(_run, program, arguments, env, launched)
    return subprocess.run(["program", *arguments], preexec_fn=run_there, check=False, **options)


def _run(program: str, arguments: tuple[str, ...], env: dict[str, str] | None, launched: bool) -> None:
    """Never return: what follows in this process is an exec."""
    status = 1
    try:
        os.closerange(3, MOST_DESCRIPTORS)  # which a new interpreter would not have
        gc.freeze()  # no file of the tests, whose number may be another's here, is closed as garbage
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        if launched and (child := os.fork()):
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            status = ended if ended >= 0 else 128 - ended
            return
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        sys.argv = ["-c", *arguments]
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        status = _status(program)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _status(program: str) -> int:
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0
