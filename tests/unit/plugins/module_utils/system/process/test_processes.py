# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signal or a wait meets the process that was meant, and never another of the same number."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import processes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

PATIENCE_S = 60.0


@pytest.fixture
def child() -> t.Iterator[subprocess.Popen[bytes]]:
    """A process that waits until its standard input ends."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_process_that_is_meant_is_held_until_its_end(child: subprocess.Popen[bytes]) -> None:
    itself = ProcessId.of(child.pid)
    handle = processes.open_process(child.pid, lambda: processes.is_process(itself))
    assert isinstance(handle, processes.ProcessHandle)
    try:
        assert not handle.wait(Deadline.after(0.0))
        assert handle.kill(Deadline.after(PATIENCE_S))
    finally:
        handle.close()
    assert child.wait(PATIENCE_S) == -signal.SIGKILL


def test_process_of_another_start_time_is_left_alone(child: subprocess.Popen[bytes]) -> None:
    """Whose number was read ended, and the number is another's by now."""
    former = ProcessId(child.pid, ProcessId.of(child.pid).start_ticks - 1)
    before = descriptors()
    assert processes.open_process(child.pid, lambda: processes.is_process(former)) is None
    assert descriptors() == before
    assert child.poll() is None


def test_process_that_cannot_be_looked_at_has_ended(child: subprocess.Popen[bytes]) -> None:
    def look() -> bool:
        raise FileNotFoundError("/proc/7/stat")

    before = descriptors()
    assert processes.open_process(child.pid, look) is None
    assert descriptors() == before


def test_error_of_a_look_leaves_no_descriptor(child: subprocess.Popen[bytes]) -> None:
    def look() -> bool:
        raise ValueError("no number")

    before = descriptors()
    with pytest.raises(ValueError, match="no number"):
        processes.open_process(child.pid, look)
    assert descriptors() == before


def test_process_that_ended_is_not_looked_at(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert processes.open_process(child.pid, lambda: pytest.fail("it has ended")) is None


def test_signal_to_a_process_that_ended_reaches_nobody(child: subprocess.Popen[bytes]) -> None:
    with processes.ProcessHandle(child.pid) as handle:
        child.kill()
        child.wait()
        handle.send(signal.SIGTERM)
        assert handle.wait(Deadline.after(0.0))


def test_handle_is_closed_once(child: subprocess.Popen[bytes]) -> None:
    before = descriptors()
    with processes.ProcessHandle(child.pid) as handle:
        handle.close()
    assert descriptors() == before


def test_those_that_did_not_end_in_time_are_left(child: subprocess.Popen[bytes]) -> None:
    with (
        subprocess.Popen(["/bin/true"]) as short,
        processes.ProcessHandle(short.pid) as over,
        processes.ProcessHandle(child.pid) as stays,
    ):
        assert over.wait(Deadline.after(PATIENCE_S))
        assert processes.wait_all([over, stays], Deadline.after(0.01)) == [stays]
    assert processes.wait_all([], Deadline.after(PATIENCE_S)) == []


def test_process_is_heard_by_a_descriptor_of_any_number(child: subprocess.Popen[bytes]) -> None:
    """select(2) knows 1024 descriptors, and a removal may hold more processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        with contextlib.ExitStack() as stack:
            while stack.enter_context(open(os.devnull, "rb")).fileno() < 1024:
                pass
            handle = stack.enter_context(processes.ProcessHandle(child.pid))
            assert handle.fileno() > 1024
            assert handle.kill(Deadline.after(PATIENCE_S))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
