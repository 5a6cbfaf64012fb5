# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When an epilogue calls the sweep, and how."""

from __future__ import annotations

import os
import pathlib
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import HookCall, Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import epilogue, prologue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.start import Places
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import detached
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.hooks import main, start_sweep


@pytest.fixture
def places(tmp_path: pathlib.Path) -> Places:
    return Places(run_dir=tmp_path / "run", state_dir=tmp_path / "state")


def test_sweep_is_not_needed_on_an_empty_node(places: Places) -> None:
    assert not start_sweep.something_unheld(places.run_dir, places.state_dir)


def test_entry_that_is_no_start_begins_no_sweep(places: Places) -> None:
    """Guests may have a file system of their own."""
    (places.state_dir / "guests" / "lost+found").mkdir(parents=True)
    assert not start_sweep.something_unheld(places.run_dir, places.state_dir)


@pytest.mark.parametrize("place", ["run/jobs", "state/guests"])
def test_something_that_nobody_works_for(places: Places, place: str) -> None:
    (places.run_dir.parent / place / "7.head.1").mkdir(parents=True)
    assert start_sweep.something_unheld(places.run_dir, places.state_dir)


def test_lock_holder_or_the_jobs_shell_is_enough(places: Places) -> None:
    settings = NodeSettings(node_name="", node_number=None, run_dir=places.run_dir)
    (places.state_dir / "guests" / "7.head.1").mkdir(parents=True)
    refused = places.run_dir / "jobs" / "8.head.1"
    files.make_directory(refused)
    shell_link.point(ProcessId.of(os.getpid()), refused, places.run_dir)
    with start_lock.lock_alone(start_lock.start_lock(settings, "7.head.1"), settings, Deadline.after(60.0)):
        assert not start_sweep.something_unheld(places.run_dir, places.state_dir)
    assert start_sweep.something_unheld(places.run_dir, places.state_dir)


@pytest.mark.parametrize("something", [True, False])
def test_sweep_runs_on_its_own_and_only_when_there_is_something(
    places: Places, monkeypatch: pytest.MonkeyPatch, something: bool
) -> None:
    called: list[tuple[list[str], dict[str, t.Any]]] = []
    monkeypatch.setattr(detached.subprocess, "Popen", lambda arguments, **how: called.append((arguments, how)))
    monkeypatch.setattr(start_sweep, "something_unheld", lambda *_directories: something)
    start_sweep.sweep_if_needed(places.run_dir, places.state_dir)
    assert called == [], "the sweep would look at other places than these"
    start_sweep.sweep_if_needed(Places.run_dir, Places.state_dir)
    assert len(called) == something
    for arguments, how in called:
        assert arguments[1:] == ["-I", "-m", start_sweep.PROGRAM]
        assert how["start_new_session"] is True
        assert "LD_LIBRARY_PATH" not in how["env"]


def test_epilogue_calls_it_also_when_it_failed(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[pathlib.Path, ...]] = []

    def fail(*_words: object, **_more: object) -> t.NoReturn:
        raise VTorqueError("something", "is left")

    monkeypatch.setattr(start_sweep, "sweep_if_needed", lambda *directories: called.append(directories))
    monkeypatch.setattr(main, "hook_began", lambda: 0.0)
    for module, name in ((prologue, "run"), (epilogue, "run"), (epilogue, "run_sister")):
        monkeypatch.setattr(module, name, fail)
    for role, times in ((Role.BEGIN_FIRST, 0), (Role.END_OTHER, 0), (Role.END_FIRST, 1)):
        with pytest.raises(VTorqueError):
            main._dispatch(t.cast(HookCall, types.SimpleNamespace(role=role, marked=False)), places)
        assert called == [(places.run_dir, places.state_dir)] * times
