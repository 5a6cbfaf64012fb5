# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a file server answers; a real one that hangs is in tests/e2e/test_hung.py."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import fileserver_probe

LONG_S = 60.0
"""Nobody waits so long for what answers."""


def children() -> str:
    return pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def test_directory_that_can_be_read_answers(tmp_path: pathlib.Path) -> None:
    before = children()
    assert fileserver_probe.answers(tmp_path, LONG_S)
    assert children() == before


def test_probe_of_a_missing_directory_gets_an_answer(tmp_path: pathlib.Path) -> None:
    assert fileserver_probe.answers(tmp_path / "none", LONG_S)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    """A reader that hangs and hears nothing but SIGKILL; it writes which descriptors it has."""
    script = tmp_path / "hang"
    script.write_text(
        f"#!{sys.executable}\nimport os, pathlib, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})\n"
        f"there, new = pathlib.Path({str(tmp_path / 'open')!r}), pathlib.Path({str(tmp_path / 'new')!r})\n"
        "new.write_text(' '.join(os.listdir('/proc/self/fd')))\nnew.rename(there)\nsignal.pause()\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(fileserver_probe, "READER", (str(script),))
    return tmp_path / "open"


def test_one_that_hangs_is_told_and_nobody_hangs_with_it(hanging: pathlib.Path) -> None:
    """Who looks is killed and gone, although it hears nothing else."""
    before = children()
    assert not fileserver_probe.answers(hanging.parent, 0.2)
    for late in map(int, set(children().split()) - set(before.split())):  # on a busy machine it dies when it can
        assert os.waitpid(late, 0)[1] == signal.SIGKILL
    assert children() == before


def test_probe_inherits_no_descriptor(hanging: pathlib.Path) -> None:
    """Else one whom even SIGKILL does not end would hold a start's lock, or the pipe of a hook."""
    reading, writing = os.pipe()
    while not hanging.exists():  # a busy machine takes its time to start it
        fileserver_probe.answers(hanging.parent, 2.0)
    # its streams, and the directory that it lists
    assert hanging.read_text().split() == ["0", "1", "2", "3"]
    os.close(reading)
    os.close(writing)


def test_probe_beside_threads_does_not_fork(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Its callers have threads, libvirt's for one."""
    monkeypatch.delattr(os, "fork")
    assert fileserver_probe.answers(tmp_path, LONG_S)


def test_pool_that_answers_is_not_what_held_anything_up(tmp_path: pathlib.Path) -> None:
    assert fileserver_probe.silent_pool(tmp_path, "the job was late") is None


@pytest.mark.usefixtures("hanging")
def test_silent_pool_is_the_sites_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(fileserver_probe, "POOL_PROBE_S", 0.2)
    fault = fileserver_probe.silent_pool(tmp_path, "the job was late")
    assert isinstance(fault, SiteFault)
    assert (fault.what, fault.why) == (f"the image pool {tmp_path} gives no answer", "the job was late")


def test_probe_that_cannot_start_blames_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    def refuse(*_command: object, **_how: object) -> t.NoReturn:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert fileserver_probe.silent_pool(tmp_path, "the job was late") is None
