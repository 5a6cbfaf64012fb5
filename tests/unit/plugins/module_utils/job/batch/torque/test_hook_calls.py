# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much time a hook has."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import hook_call
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import HookCall
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import hook_calls
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

NOW = 1_000_000.0
"""Seconds of the monotonic clock."""


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> float:
    """Both stand still: the monotonic one at NOW, the system's at what is returned."""
    monkeypatch.setattr(hook_calls.time, "monotonic", lambda: NOW)
    monkeypatch.setattr(hook_calls.time, "time", lambda: 1.8e9)
    return 1.8e9


def deadline(call: HookCall, torque_home: pathlib.Path, at_most_s: float) -> float:
    """As the hooks compute it."""
    ends = hook_calls.hook_ends(call, Policy(torque_home=str(torque_home)), NOW)
    return hook_call.deadline(ends, began=NOW, at_most_s=at_most_s, reserve_s=15)


@pytest.mark.parametrize(
    ("config", "alarm"),
    [
        ("", 300),
        ("$prologalarm 600\n", 600),
        ("# $prologalarm 1\n$pbsserver th\n", 300),
        ("$prologalarm 5\n$prologalarm  7 \n", 7),
    ],
)
def test_alarm_of_the_mom(tmp_path: pathlib.Path, config: str, alarm: int) -> None:
    (tmp_path / "mom_priv").mkdir()
    (tmp_path / "mom_priv/config").write_text(config)
    assert hook_calls.read_alarm_s(tmp_path) == alarm


@pytest.mark.parametrize(
    ("alarm", "at_most_s", "arrived", "left_s"),
    [
        (300, 270, 0, 270),  # the site's own bound
        (300, 1000, 0, 275),  # killed at 290, less the reserve
        (300, 1000, -100, 185),  # given up 300 s after its arrival
        (300, 1000, 50, 275),  # a node file of the future says nothing
        (300, 1000, -99_999, 275),  # nor does one that was left behind
        (8, 1000, 0, -7),
    ],
)
def test_deadline_follows_from_both_clocks(
    tmp_path: pathlib.Path, clocks: float, alarm: int, at_most_s: float, arrived: float, left_s: float
) -> None:
    for name in ("mom_priv", "aux"):
        (tmp_path / name).mkdir()
    (tmp_path / "mom_priv/config").write_text(f"$prologalarm {alarm}\n")
    call = hook_calls.read_call(["prologue", "yes", "1", "t1", "1.th", "alice", *[""] * 6], {})
    path = tmp_path / "aux/1.th"
    path.touch()
    os.utime(path, (clocks + arrived, clocks + arrived))
    found = deadline(call, tmp_path, at_most_s)
    assert found == NOW + left_s


def test_job_that_ran_for_minutes_leaves_its_epilogue_all_the_time(tmp_path: pathlib.Path, clocks: float) -> None:
    (tmp_path / "aux").mkdir()
    call = hook_calls.read_call(["epilogue", "yes", "1", "t1", "1.th", "alice", *[""] * 9], {})
    (tmp_path / "aux/1.th").touch()
    os.utime(tmp_path / "aux/1.th", (clocks - 500, clocks - 500))
    assert deadline(call, tmp_path, float("inf")) == NOW + 275


@pytest.mark.parametrize("jump_s", [-10_000.0, 10_000.0])
def test_a_clock_that_somebody_sets_moves_no_deadline(
    tmp_path: pathlib.Path, clocks: float, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """A node file from before that is as one of the future, or as one that was left behind."""
    (tmp_path / "aux").mkdir()
    (tmp_path / "aux/1.th").touch()
    os.utime(tmp_path / "aux/1.th", (clocks - 1, clocks - 1))
    monkeypatch.setattr(hook_calls.time, "time", lambda: clocks + jump_s)
    call = hook_calls.read_call(["prologue", "yes", "1", "t1", "1.th", "alice", *[""] * 6], {})
    assert deadline(call, tmp_path, float("inf")) == NOW + 275


@pytest.mark.parametrize(
    ("role", "output", "session"),
    [("epilogue", "4711", 4711), ("epilogue.parallel", "0", 0), ("epilogue", "", 0), ("epilogue", "-1", 0),
     ("epilogue", "x", 0), ("prologue", "4711", 0)],
)  # fmt: skip
def test_session_of_the_job(role: str, output: str, session: int) -> None:
    arguments = [role, "yes", "1", "t1", "1.th", "alice", "g", "name", output, *[""] * 6]
    assert hook_calls.read_call(arguments, {}).session == session
