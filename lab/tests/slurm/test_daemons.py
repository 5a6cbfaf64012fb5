# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a daemon of Slurm's that was started has ended before it listens."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from lab.slurm import daemons


@pytest.mark.parametrize("content", [None, "", "\n"], ids=["no file", "empty", "blank"])
def test_daemon_that_has_not_written_its_number_has_not_ended(tmp_path: pathlib.Path, content: str | None) -> None:
    file = tmp_path / "server.pid"
    if content is not None:
        file.write_text(content)
    assert daemons._has_ended(file, "slurmctld") is False


def test_daemon_whose_number_names_nobody_has_ended(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "server.pid"
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    file.write_text(f"{process.pid}\n")
    assert daemons._has_ended(file, "slurmctld") is True


def test_daemon_that_runs_has_not_ended(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "server.pid"
    file.write_text(f"{os.getpid()}\n")
    name = pathlib.Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert daemons._has_ended(file, name) is False
    assert daemons._has_ended(file, "slurmctld") is True
