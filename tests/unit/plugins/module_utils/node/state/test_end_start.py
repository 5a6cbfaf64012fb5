# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a start, whoever works for it and however that one is."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.end_start import end_start
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

KEY = "7.head.2"


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    return NodeSettings("cn1", 1, template_dir=None, state_dir=tmp_path / "state", run_dir=tmp_path / "run")


def test_connection_opened_meanwhile_finds_the_start_ended(settings: NodeSettings) -> None:
    done: list[str] = []

    @contextlib.contextmanager
    def meanwhile() -> t.Iterator[str]:
        done.append(f"opened, buried {start_lock.tombstone(settings, KEY).exists()}")
        yield "libvirt"
        done.append("closed")

    def remove_leftovers(opened: str) -> tuple[str, ...]:
        done.append(f"looked with {opened}, held {start_lock.is_locked(start_lock.start_lock(settings, KEY))}")
        return ("slot 1",)

    assert end_start(settings, KEY, Deadline.after(60), remove_leftovers, meanwhile=meanwhile) == ("slot 1",)
    assert done == ["opened, buried True", "looked with libvirt, held True", "closed"]
    assert not start_lock.start_lock(settings, KEY).exists()


def test_connection_that_fails_leaves_the_start_ended(settings: NodeSettings) -> None:
    def fail() -> t.NoReturn:
        raise OSError("libvirt is silent")

    with pytest.raises(OSError, match="silent"):
        end_start(settings, KEY, Deadline.after(60), lambda _none: (), meanwhile=fail)
    assert start_lock.tombstone(settings, KEY).exists()


HOLD = """
import os, pathlib, sys
from {lock} import Lock
from {process} import ProcessId
lock = Lock(pathlib.Path(sys.argv[1]))
lock.take_now()
lock.sign(ProcessId.of(os.getpid()), ["domain vcn1-1"])
print(flush=True)
sys.stdin.read()
"""


def test_holder_that_keeps_the_lock_is_ended_and_quoted(settings: NodeSettings) -> None:
    path = start_lock.start_lock(settings, KEY)
    process = "ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id"
    program = HOLD.format(lock=start_lock.__name__, process=process)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], env={"PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        holder.stdout.readline()
        gone = end_start(settings, KEY, Deadline.after(3), lambda _none: ("slot 1",), meanwhile=contextlib.nullcontext)
        assert holder.wait(60) < 0
    assert gone == ("domain vcn1-1", "slot 1")
