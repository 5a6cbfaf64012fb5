# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls that fork are made by a process of one thread."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, VTorqueError, unjudged
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.forking_process import (
    DirectCaller,
    ForkingProcess,
)


def count_threads(*more: object) -> tuple[int, int, tuple[object, ...]]:
    return os.getpid(), len(os.listdir("/proc/self/task")), more


def fail_by_the_system() -> t.NoReturn:
    raise OSError(errno.ENOSPC, "no room", "/disk")


def fail_by_the_node() -> t.NoReturn:
    try:
        fail_by_the_system()
    except OSError as error:
        raise NodeFault("a server", "did not start", "see to it", cause="disk") from error


def fail_by_a_mistake() -> t.NoReturn:
    raise ZeroDivisionError("of ours")


def end() -> t.NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
    raise AssertionError


FUNCTIONS = (count_threads, fail_by_the_system, fail_by_the_node, fail_by_a_mistake, end)


@pytest.fixture
def caller() -> t.Iterator[ForkingProcess]:
    with ForkingProcess(FUNCTIONS) as one:
        yield one


@pytest.fixture
def beside_threads(caller: ForkingProcess) -> t.Iterator[ForkingProcess]:
    """It was there before there are threads here."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield caller
    over.set()
    thread.join()


def test_call_is_made_in_one_process_without_threads(beside_threads: ForkingProcess) -> None:
    caller = beside_threads
    pid, threads, more = caller.call(count_threads, "a", pathlib.Path("/b"))
    assert (threads, more) == (1, ("a", pathlib.Path("/b")))
    assert pid not in (os.getpid(), os.getppid())
    assert caller.call(count_threads)[0] == pid


def test_error_comes_with_its_owner_and_its_cause(caller: ForkingProcess) -> None:
    with pytest.raises(OSError, match="no room") as system:
        caller.call(fail_by_the_system)
    assert (system.value.errno, system.value.filename) == (errno.ENOSPC, "/disk")
    with pytest.raises(NodeFault) as node:
        caller.call(fail_by_the_node)
    assert (node.value.what, node.value.why, node.value.hint, node.value.cause) == (
        "a server", "did not start", "see to it", "disk",
    )  # fmt: skip
    assert isinstance(unjudged(node.value), OSError)
    with pytest.raises(VTorqueError, match="ZeroDivisionError"):
        caller.call(fail_by_a_mistake)
    assert caller.call(count_threads)[1] == 1


def test_end_of_the_child_is_an_error_and_no_wait(caller: ForkingProcess) -> None:
    for _again in range(2):
        with pytest.raises(VTorqueError, match="has ended while it was needed"):
            caller.call(end)


def test_child_goes_with_its_context_and_with_its_parent() -> None:
    with ForkingProcess(FUNCTIONS) as one:
        pid = one.call(count_threads)[0]
    assert not pathlib.Path("/proc", str(pid)).exists()
    reading, writing = os.pipe()
    if (parent := os.fork()) == 0:
        os.write(writing, str(ForkingProcess(FUNCTIONS).call(count_threads)[0]).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    child = pathlib.Path("/proc", os.read(reading, 100).decode())
    os.close(reading)
    os.close(writing)
    while child.exists() and "Z" not in (child / "stat").read_text().split():
        pass


def test_direct_caller_makes_the_call_here() -> None:
    assert DirectCaller().call(count_threads, 1)[::2] == (os.getpid(), (1,))
