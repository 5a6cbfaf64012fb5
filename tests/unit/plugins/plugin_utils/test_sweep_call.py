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
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import records, shell_links
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job import epilogue, prologue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hook_call import HookCall
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.playbook import Places
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import locks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.records import Deadline, ProcessId
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils import hook_work, sweep_call


@pytest.fixture
def places(tmp_path: pathlib.Path) -> Places:
    return Places(run_dir=tmp_path / "run", state_dir=tmp_path / "state")


def test_nothing_is_here(places: Places) -> None:
    assert not sweep_call.something_unheld(places)


def test_what_is_no_starts_calls_no_sweep_at_each_epilogue(places: Places) -> None:
    """Guests may have a file system of their own."""
    (places.state_dir / "guests" / "lost+found").mkdir(parents=True)
    assert not sweep_call.something_unheld(places)


@pytest.mark.parametrize("place", ["run/jobs", "state/guests"])
def test_something_that_nobody_works_for(places: Places, place: str) -> None:
    (places.run_dir.parent / place / "7.head.1").mkdir(parents=True)
    assert sweep_call.something_unheld(places)


def test_a_lock_holder_or_the_jobs_shell_is_enough(places: Places) -> None:
    settings = NodeSettings(node_name="", node_number=None, run_dir=places.run_dir)
    (places.state_dir / "guests" / "7.head.1").mkdir(parents=True)
    refused = places.run_dir / "jobs" / "8.head.1"
    records.make_directory(refused)
    shell_links.point(ProcessId.of(os.getpid()), refused, places.run_dir)
    with locks.held(locks.start_lock(settings, "7.head.1"), settings, Deadline.after(60.0)):
        assert not sweep_call.something_unheld(places)
    assert sweep_call.something_unheld(places)


@pytest.mark.parametrize("something", [True, False])
def test_the_sweep_runs_on_its_own_and_only_when_there_is_something(
    places: Places, monkeypatch: pytest.MonkeyPatch, something: bool
) -> None:
    called: list[tuple[list[str], dict[str, t.Any]]] = []
    monkeypatch.setattr(sweep_call.subprocess, "Popen", lambda words, **how: called.append((words, how)))
    monkeypatch.setattr(sweep_call, "something_unheld", lambda _places: something)
    sweep_call.sweep_if_needed(places)
    assert called == [], "the sweep would look at other places than these"
    sweep_call.sweep_if_needed(Places())
    assert len(called) == something
    for words, how in called:
        assert words[1:] == ["-I", "-m", sweep_call.PROGRAM]
        assert how["start_new_session"] is True
        assert "LD_LIBRARY_PATH" not in how["env"]


def test_an_epilogue_calls_it_also_when_it_failed(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Places] = []

    def fail(*_words: object, **_more: object) -> t.NoReturn:
        raise VTorqueError("something", "is left")

    monkeypatch.setattr(sweep_call, "sweep_if_needed", called.append)
    monkeypatch.setattr(hook_work, "hook_began", lambda: 0.0)
    for module, name in ((prologue, "run"), (epilogue, "run"), (epilogue, "run_sister")):
        monkeypatch.setattr(module, name, fail)
    for role, times in (("prologue", 0), ("epilogue.parallel", 0), ("epilogue", 1)):
        with pytest.raises(VTorqueError):
            hook_work._dispatch(t.cast(HookCall, types.SimpleNamespace(role=role, marked=False)), places)
        assert called == [places] * times
