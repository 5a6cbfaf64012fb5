# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process may take."""

from __future__ import annotations

import os
import pathlib
import resource
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_limits

WORDS = """
import os, pathlib, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_limits as background
of_session = pathlib.Path(f"/proc/{os.getsid(0)}/autogroup")
def group():
    return of_session.read_text().strip() if of_session.exists() else ""
before = group()
background.lower_priority(9)
print(os.getpriority(os.PRIO_PROCESS, 0), before, group(), sep=chr(10))
"""


def stepped_back(*before: str) -> list[str]:
    """The niceness of a process in a new session after it stepped back, and what its session's group was and is.

    A group's line ends with its niceness. It is empty where the kernel makes no groups; a session from before the first
    setsid() has none either, which is why this looks at a new one.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["setsid", "--wait", *before, sys.executable, "-c", WORDS], capture_output=True, text=True, check=True,
        timeout=60, env=environment,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_session_leader_lowers_the_priority_of_its_session() -> None:
    niceness, before, after = stepped_back()
    assert niceness == str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 9))
    assert after == before.removesuffix("nice 0") + ("nice 9" if before else "")


def test_process_that_is_no_leader_lowers_its_own_priority() -> None:
    """What else is in this session belongs to somebody: a login, or the run of these tests."""
    niceness, before, after = stepped_back("timeout", "60")
    assert niceness == str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 9))
    assert after == before


def test_kernel_without_groups_is_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(process_limits, "AUTOGROUP", tmp_path / "none" / "autogroup")
    monkeypatch.setattr(os, "getsid", lambda _process: os.getpid())
    asked: list[int] = []
    monkeypatch.setattr(os, "nice", asked.append)
    process_limits.lower_priority(19)
    assert asked == [19]
    assert not (tmp_path / "none").exists()


def test_program_is_bounded_from_outside() -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        process_limits.leash(process.pid, process_limits.WORDS)
        most = process_limits.WORDS_BYTES
        assert resource.prlimit(process.pid, resource.RLIMIT_FSIZE) == (most, most)
        assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == (0, 0)


def test_program_that_ended_is_no_fault() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        pass
    process_limits.leash(process.pid, process_limits.WORDS)
