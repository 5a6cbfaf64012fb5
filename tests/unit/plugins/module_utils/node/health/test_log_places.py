# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's word on the log: each place where a line would be lost, with its remedy."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import log_places
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.event_log import LogSettings

MOUNTS = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 21 0:5 / /srv/shared\\040logs rw - nfs4 fs:/logs rw\n"


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    (tmp_path / "log").mkdir()
    return NodeSettings(node_name="cn1", node_number=1, state_dir=tmp_path)


@pytest.fixture
def mounts(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS)
    return path


def test_log_that_can_be_written_is_well(settings: NodeSettings, mounts: pathlib.Path) -> None:
    assert log_places.check_log(settings, mounts).state == "ok"
    own = dataclasses.replace(
        settings, log=LogSettings(file=settings.state_dir / "site.log", program=pathlib.Path("/bin/true"))
    )
    assert log_places.check_log(own, mounts).state == "ok"


def test_missing_directory_of_logs_is_reported_with_the_command_that_makes_it(
    settings: NodeSettings, mounts: pathlib.Path
) -> None:
    (settings.state_dir / "log").rmdir()
    finding = log_places.check_log(settings, mounts)
    assert (finding.state, finding.remedy) == ("warn", f"install -d -m 700 {settings.state_dir}/log")
    assert "is missing" in finding.problem


def test_directory_of_logs_that_cannot_be_written_is_reported(
    settings: NodeSettings, mounts: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: path != settings.state_dir / "log")
    assert "log cannot be written" in log_places.check_log(settings, mounts).problem


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("none/site.log", "none is missing"),
        ("mountinfo/site.log", "mountinfo is no directory"),
        ("log", "is no regular file"),
        ("link", "is no regular file"),
    ],
)
def test_file_of_the_site_that_gets_no_line_is_reported(
    settings: NodeSettings, mounts: pathlib.Path, file: str, message: str
) -> None:
    (settings.state_dir / "link").symlink_to("elsewhere")
    own = dataclasses.replace(settings, log=LogSettings(file=settings.state_dir / file))
    finding = log_places.check_log(own, mounts)
    assert (finding.state, finding.remedy != "") == ("warn", True)
    assert "log_file" in finding.problem
    assert message in finding.problem


def test_file_of_the_site_on_a_server_is_reported(
    settings: NodeSettings, mounts: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_places, "_unwritable", lambda _directory: "")
    for directory, state in (("/srv/shared logs/cn1", "warn"), ("/srv/shared", "ok"), ("/", "ok")):
        own = dataclasses.replace(settings, log=LogSettings(file=pathlib.Path(directory) / "vtorque.log"))
        finding = log_places.check_log(own, mounts)
        assert finding.state == state, directory
        assert ("is on nfs4" in finding.problem) == (state == "warn")


@pytest.mark.parametrize("kind", ["missing", "for root alone", "a directory", "below a closed directory"])
def test_program_of_the_site_that_nobody_can_run_is_reported(
    settings: NodeSettings, mounts: pathlib.Path, kind: str
) -> None:
    program = settings.state_dir / "tell"
    if kind == "for root alone":
        program.touch(0o700)
    elif kind == "a directory":
        program.mkdir(0o755)
    elif kind == "below a closed directory":
        program = settings.state_dir / "closed" / "tell"
        program.parent.mkdir(0o700)
        program.touch(0o755)
    own = dataclasses.replace(settings, log=LogSettings(program=program))
    finding = log_places.check_log(own, mounts)
    assert finding.state == "warn"
    assert finding.problem.startswith("log_program: ")
    assert str(program) in finding.problem
