# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions that the roles ask a host: commands that change nothing, each run to its end or to its time.

Runs on hosts that have nothing of the product yet, with whatever Python Ansible finds there (3.9 and later).
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import typing as t

TOO_LONG, MISSING = 124, 127
"""Statuses, as timeout(1) and a shell have them."""
PLAIN = {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}
"""Answers are read by programs, whatever language root's are in here."""
KILLED_S = 5
"""For what was killed to be gone."""


KINDS: t.Dict[str, type] = {"argv": list, "stdin": str, "environment": dict, "program": str, "must": bool}
"""What a question may say, and of which type."""


def fault_of(question: object) -> str:
    """Return what is wrong with the form of a question; "": nothing."""
    if not isinstance(question, dict):
        return "it is no dictionary"
    if strange := sorted(set(question) - set(KINDS)):
        return f"it has {', '.join(map(str, strange))}; allowed: {', '.join(KINDS)}"
    for name, kind in KINDS.items():
        if name in question and not isinstance(question[name], kind):
            return f"{name} is no {kind.__name__}"
    return "" if question.get("argv") or question.get("program") else "it has neither argv nor a program"


def run_question(question: dict[str, t.Any], place: pathlib.Path, limit_s: float) -> dict[str, t.Any]:
    """Run one command to its end.

    Args:
        question: `argv`, and perhaps `stdin` and `environment`; `program`, where that is one of Python.
        place: directory for the program.
        limit_s: it is killed then, with what it began.

    Returns:
        `rc`, `stdout` and `stderr`.
    """
    environment = {
        **os.environ,
        **PLAIN,
        **{name: str(value) for name, value in question.get("environment", {}).items()},
    }
    argv = [_read_argument(word) for word in question.get("argv", [])]
    if "program" in question:
        file = place / "program.py"
        file.write_text(question["program"], encoding="utf-8")
        argv = [sys.executable, "-I", str(file), *argv]
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # the second: a zero byte in a word
        return {"rc": MISSING, "stdout": "", "stderr": f"{argv[0]}: {getattr(error, 'strerror', None) or error}"}
    try:
        out, errors = process.communicate(question.get("stdin", "").encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            out, errors = process.communicate(timeout=KILLED_S)
        except subprocess.TimeoutExpired:  # it waits for a file server, and not even that ends it
            out = b""
        return {"rc": TOO_LONG, "stdout": _text(out), "stderr": f"no end after {limit_s:g} s"}
    return {"rc": process.returncode, "stdout": _text(out), "stderr": _text(errors)}


def _read_argument(word: object) -> str:
    """A word; ansible-core 2.18 makes a list of one that looks like a list of JSON."""
    return word if isinstance(word, str) else json.dumps(word)


def _text(written: bytes) -> str:
    return written.decode("utf-8", "replace").rstrip("\r\n")
