# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a file server answers; a real one that hangs is in tests/e2e/test_hung.py."""

from __future__ import annotations

import errno
import os
import pathlib
import signal

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


def test_one_that_hangs_is_told_and_nobody_hangs_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Who looks is killed and gone, although it hears nothing else."""
    before = children()

    def hang(_directory: pathlib.Path) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
        signal.pause()

    monkeypatch.setattr(pathlib.Path, "iterdir", hang)
    assert not fileserver_probe.answers(tmp_path, 0.2)
    for late in map(int, set(children().split()) - set(before.split())):  # on a busy machine it dies when it can
        assert os.waitpid(late, 0)[1] == signal.SIGKILL
    assert children() == before


def test_probe_inherits_no_descriptor(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Else one whom even SIGKILL does not end would hold a start's lock, or the pipe of a hook."""
    reading, writing = os.pipe()

    def hang(_directory: pathlib.Path) -> None:
        os.close(reading)  # is closed already
        signal.pause()

    monkeypatch.setattr(pathlib.Path, "iterdir", hang)
    assert fileserver_probe.answers(tmp_path, LONG_S)
    os.close(reading)
    os.close(writing)


def test_pool_that_answers_is_not_what_held_anything_up(tmp_path: pathlib.Path) -> None:
    assert fileserver_probe.silent_pool(tmp_path, "the job was late") is None


def test_silent_pool_is_the_sites_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(fileserver_probe, "POOL_PROBE_S", 0.2)
    monkeypatch.setattr(pathlib.Path, "iterdir", lambda _directory: signal.pause())
    fault = fileserver_probe.silent_pool(tmp_path, "the job was late")
    assert isinstance(fault, SiteFault)
    assert (fault.what, fault.why) == (f"the image pool {tmp_path} gives no answer", "the job was late")


def test_probe_that_cannot_start_blames_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    assert fileserver_probe.silent_pool(tmp_path, "the job was late") is None
