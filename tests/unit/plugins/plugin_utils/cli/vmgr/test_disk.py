# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks of the caller's own are made empty, and never in place of something."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import disk, main


@pytest.mark.parametrize("kind", ["qcow2", "raw"])
def test_disk_is_made_and_shown(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    path = tmp_path / "it's data"
    assert main.run_subject(["disk", "create", str(path), "1G", "--format", kind]) == 0
    assert capsys.readouterr().out == f"{path}  {kind}  1G\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_blocks * 512 < 1 << 20
    assert main.run_subject(["disk", "show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(path), "format": kind, "size_mib": 1024}


def test_disk_that_exists_stays(tmp_path: pathlib.Path) -> None:
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link"):
        with pytest.raises(UserFault, match="is there already"):
            disk.create(str(tmp_path / name), "1G", "qcow2")
    assert (tmp_path / "there").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("size", ["", "1", "-1G", "many", "1P"])
def test_size_that_is_none_makes_nothing(tmp_path: pathlib.Path, size: str) -> None:
    with pytest.raises(UserFault, match="allowed: a number"):
        disk.create(str(tmp_path / "new"), size, "qcow2")
    assert list(tmp_path.iterdir()) == []


def test_disk_creation_that_fails_leaves_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserFault, match="cannot be made: No such file"):
        disk.create(str(tmp_path / "gone/new"), "1G", "qcow2")
    program = tmp_path / "qemu-img"
    program.write_text("#!/bin/sh\necho 'qemu-img: no space' >&2\nexit 1\n")
    program.chmod(0o755)
    for path in (program, tmp_path / "missing"):
        monkeypatch.setattr(disk, "QEMU_IMG", str(path))
        with pytest.raises(VTorqueError, match="cannot be made"):
            disk.create(str(tmp_path / "new"), "1G", "qcow2")
    assert [path.name for path in tmp_path.iterdir()] == ["qemu-img"]
