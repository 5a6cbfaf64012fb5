# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root's records, and the links by which the job's shell finds them."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.records import ProcessId


def test_the_link_of_a_job_that_ends_meanwhile_is_passed_over(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = (records.run_directory(job_id, 1, tmp_path) for job_id in ("1.head", "2.head"))
    records.point_shell(ProcessId(11, 1), mine, tmp_path)
    records.point_shell(ProcessId(12, 1), other, tmp_path)
    readlink = pathlib.Path.readlink

    def read(path: pathlib.Path) -> pathlib.Path:
        if path.name == "12.1":
            path.unlink()
        return readlink(path)

    monkeypatch.setattr(pathlib.Path, "readlink", read)
    assert [link.name for link in records.shell_links(mine, tmp_path)] == ["11.1"]


def test_links_go_before_what_they_lead_to(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = records.run_directory("7.head", 1, tmp_path)
    directory.mkdir(parents=True)
    (directory / "job_key").write_text("secret")
    records.point_shell(ProcessId(1, 1), directory, tmp_path)
    seen = []
    real = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path: (seen.append(records.shell_links(path, tmp_path)), real(path)))
    assert records.remove_run(directory, tmp_path) == ("shell link 1.1", "run directory 7.head.1")
    assert seen == [()]
    assert records.remove_run(directory, tmp_path) == ()


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o660])
def test_one_more_reader_is_what_setfacl_makes_of_him(tmp_path: pathlib.Path, mode: int) -> None:
    """Also of a file whose group could read it: that right is gone, not handed on."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        path.touch()
        path.chmod(mode)
    fd = os.open(ours, os.O_WRONLY)
    records.let_read(fd, 4242)
    os.close(fd)
    subprocess.run(["setfacl", "-m", "u:4242:r,g::-,m::r", theirs], check=True, timeout=60)
    assert os.getxattr(ours, "system.posix_acl_access") == os.getxattr(theirs, "system.posix_acl_access")
    assert ours.stat().st_mode == theirs.stat().st_mode


def test_a_record_that_somebody_may_read_is_there_whole_or_not_at_all(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system without ACLs is told, and leaves nothing."""

    def refuse(*_args: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(records.os, "setxattr", refuse)
    with pytest.raises(VTorqueError, match="not supported"):
        records.write(tmp_path / "ready.json", "{}", reader_uid=4242)
    assert list(tmp_path.iterdir()) == []
