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


def ask(question: dict[str, t.Any], place: pathlib.Path, limit_s: float) -> dict[str, t.Any]:
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
    words = [_word(word) for word in question.get("argv", [])]
    if "program" in question:
        file = place / "program.py"
        file.write_text(question["program"], encoding="utf-8")
        words = [sys.executable, "-I", str(file), *words]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return {"rc": MISSING, "stdout": "", "stderr": f"{words[0]}: {error.strerror}"}
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


def _word(word: object) -> str:
    """A word; ansible-core 2.18 makes a list of one that looks like a list of JSON."""
    return word if isinstance(word, str) else json.dumps(word)


def _text(written: bytes) -> str:
    return written.decode("utf-8", "replace").rstrip("\r\n")
