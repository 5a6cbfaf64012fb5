#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `host_info`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Ask a host many things in one call
version_added: 0.2.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Runs commands that change nothing, one after the other, and tells what each wrote.
  - A task for each costs a site with many nodes more than the asking.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
attributes:
  check_mode:
    support: full
    details: Asks as otherwise, as nothing is changed.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  questions:
    description:
      - By names of their own. Each has C(argv), a list of words, and perhaps C(stdin), a text. What is no text among
        the words is given as JSON.
      - C(program), a text, stands for a program that the Python of this module runs, with C(argv) as its arguments.
      - C(must), when it is true, has the task fail where the command does.
      - C(environment) is a dictionary of variables beside those that are there.
    type: dict
    required: true
  timeout:
    description:
      - For how many seconds each may go on. It is killed then, with what it began, and its status is 124.
    type: int
    default: 300
seealso:
  - module: mikelangelo.vtorque.host_files
"""

EXAMPLES = r"""
---
- name: Look at the host
  mikelangelo.vtorque.host_info:
    questions:
      kernel: {argv: [uname, -r], must: true}
      timers: {argv: [systemctl, is-enabled, vtorque-sweep.timer]}
  register: asked
"""

RETURN = r"""
answers:
  description:
    - What each wrote, without empty lines at its end, and its status C(rc). Of a command that is not there that is 127.
  returned: success
  type: dict
  sample: {"kernel": {"rc": 0, "stdout": "6.1.0-18-amd64", "stderr": ""}}
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import typing as t

from ansible.module_utils.basic import AnsibleModule

TOO_LONG, MISSING = 124, 127
"""Statuses, as timeout(1) and a shell have them."""
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
    environment = {**os.environ, **{name: str(value) for name, value in question.get("environment", {}).items()}}
    words = [_word(word) for word in question.get("argv", [])]
    if "program" in question:
        file = place / "program.py"
        file.write_text(question["program"], encoding="utf-8")
        words = [sys.executable, "-I", str(file), *words]
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environment, start_new_session=True,
        )  # fmt: skip
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


def main() -> None:
    """Ask, and tell."""
    module = AnsibleModule(
        argument_spec={
            "questions": {"type": "dict", "required": True},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    told = {"module_args": {"questions": list(module.params["questions"])}}
    answers = {}
    for name, question in module.params["questions"].items():
        if not isinstance(question, dict) or not (question.get("argv") or question.get("program")):
            module.fail_json(msg=f"{name} is no question: it has neither argv nor a program", invocation=told)
        answers[name] = ask(question, pathlib.Path(module.tmpdir), module.params["timeout"])
        if question.get("must") and answers[name]["rc"] != 0:
            words = answers[name]["stderr"] or answers[name]["stdout"]
            module.fail_json(msg=f"{name}: status {answers[name]['rc']}: {words}", answers=answers, invocation=told)
    module.exit_json(changed=False, answers=answers, invocation=told)


if __name__ == "__main__":
    main()
