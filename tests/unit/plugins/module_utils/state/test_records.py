# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root's records: who may read them, and that they are there whole or not at all."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import errors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import acl, files


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o660])
def test_one_more_reader_is_what_setfacl_makes_of_him(tmp_path: pathlib.Path, mode: int) -> None:
    """Also of a file whose group could read it: that right is gone, not handed on."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        path.touch()
        path.chmod(mode)
    fd = os.open(ours, os.O_WRONLY)
    acl.let_read(fd, 4242)
    os.close(fd)
    subprocess.run(["setfacl", "-m", "u:4242:r,g::-,m::r", theirs], check=True, timeout=60)
    assert os.getxattr(ours, "system.posix_acl_access") == os.getxattr(theirs, "system.posix_acl_access")
    assert ours.stat().st_mode == theirs.stat().st_mode


def test_record_that_somebody_may_read_is_there_whole_or_not_at_all(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system without ACLs is told, and leaves nothing."""

    def refuse(*_args: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(records.os, "setxattr", refuse)
    with pytest.raises(VTorqueError, match="not supported"):
        files.write(tmp_path / "ready.json", "{}", reader_uid=4242)
    assert list(tmp_path.iterdir()) == []


def test_disk_that_has_no_room_for_a_right_is_known_as_full(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is told a name that is of no file."""

    def refuse(name: str, *_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", name)

    monkeypatch.setattr(records.os, "setxattr", refuse)
    with pytest.raises(VTorqueError) as caught:
        files.write(tmp_path / "ready.json", "{}", reader_uid=4242)
    disk = errors.broken_disk(caught.value)
    assert disk is not None
    assert errors.files_of(disk) == ()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("mode", [0o711, 0o755])
def test_directory_is_never_open_to_more_than_it_is_to_be(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, umask: int, mode: int
) -> None:
    """Who opened it in between would go on listing it."""
    before = []
    really = pathlib.Path.chmod

    def look(path: pathlib.Path, wanted: int) -> None:
        before.append(path.stat().st_mode & 0o777 & ~wanted)
        really(path, wanted)

    monkeypatch.setattr(pathlib.Path, "chmod", look)
    old = os.umask(umask)
    try:
        files.make_directory(tmp_path / "above" / "one", mode)
    finally:
        os.umask(old)
    assert (tmp_path / "above").stat().st_mode & 0o777 == 0o711
    assert (tmp_path / "above" / "one").stat().st_mode & 0o777 == mode
    assert before == ([0, 0] if umask == 0o077 else [])
