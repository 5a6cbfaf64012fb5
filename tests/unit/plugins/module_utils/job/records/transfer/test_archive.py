# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A front end's records: each is added whole and once, and nothing that is there is ever changed."""

from __future__ import annotations

import errno
import os
import pathlib
import stat
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer import archive
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer.archive import RecordRejected
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer.transfer_format import Parcel

UID = 70_001
RECORD = b'{"version": 1, "job_id": "72[1].head", "start": 2}'
PARCEL = Parcel("72[1].head", 2, {"record.json": RECORD, "vtorque.log": b"began\n", "va-1.console.log": b"Linux\xff\n"})


def content(directory: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_record_is_kept_for_its_owner(tmp_path: pathlib.Path) -> None:
    assert archive.add(PARCEL, UID, tmp_path)
    there = tmp_path / "records/72-1.head.2"
    assert content(there) == {**PARCEL.files, "va-1.console.log": "Linux\ufffd\n".encode()}
    for path in (there, *there.iterdir()):
        assert path.stat().st_uid == 0
        assert UID.to_bytes(4, "little") in os.getxattr(path, "system.posix_acl_access")
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o007 == 0 for path in there.iterdir())
    assert os.listdir(there.parent) == [there.name]


def test_same_record_once_more_changes_nothing(tmp_path: pathlib.Path) -> None:
    """Its log has grown meanwhile: it tells of the first try."""
    archive.add(PARCEL, UID, tmp_path)
    there = tmp_path / "records/72-1.head.2"
    before = content(there)
    again = Parcel(PARCEL.job_id, 2, {**PARCEL.files, "vtorque.log": b"began\nwas not handed over\n"})
    assert not archive.add(again, UID + 1, tmp_path)
    assert content(there) == before
    assert os.listdir(there.parent) == [there.name]


@pytest.mark.parametrize("other", [RECORD + b" ", RECORD[:-1], b""])
def test_another_record_of_the_start_is_refused_and_the_first_stays(tmp_path: pathlib.Path, other: bytes) -> None:
    archive.add(PARCEL, UID, tmp_path)
    there = tmp_path / "records/72-1.head.2"
    before = content(there)
    with pytest.raises(RecordRejected, match="another record of it is kept here"):
        archive.add(Parcel(PARCEL.job_id, 2, {**PARCEL.files, "record.json": other}), UID, tmp_path)
    assert content(there) == before
    assert os.listdir(there.parent) == [there.name]


def test_host_that_is_a_node_too_keeps_its_own_consoles(tmp_path: pathlib.Path) -> None:
    there = tmp_path / "records/72-1.head.2"
    there.mkdir(parents=True)
    (there / "va-1.console.log").write_bytes(b"mine")
    assert archive.add(PARCEL, UID, tmp_path)
    assert content(there) == {**PARCEL.files, "va-1.console.log": b"mine"}
    assert UID.to_bytes(4, "little") in os.getxattr(there, "system.posix_acl_access")


def link(there: pathlib.Path, target: pathlib.Path) -> None:
    there.symlink_to(target)


def link_of_record(there: pathlib.Path, target: pathlib.Path) -> None:
    there.mkdir()
    (there / "record.json").symlink_to(target / "record.json")


def file(there: pathlib.Path, _target: pathlib.Path) -> None:
    there.write_text("")


def pipe(there: pathlib.Path, _target: pathlib.Path) -> None:
    there.mkdir()
    os.mkfifo(there / "record.json")


@pytest.mark.parametrize("put", [link, link_of_record, file, pipe])
def test_archive_entry_that_is_no_record_stays_untouched(
    tmp_path: pathlib.Path, put: t.Callable[[pathlib.Path, pathlib.Path], None]
) -> None:
    target, there = tmp_path / "target", tmp_path / "records/72-1.head.2"
    target.mkdir()
    there.parent.mkdir()
    put(there, target)
    before = there.lstat()
    with pytest.raises(VTorqueError):
        archive.add(PARCEL, UID, tmp_path)
    assert (there.lstat().st_ino, there.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert os.listdir(target) == []
    assert os.listdir(there.parent) == [there.name]


def test_records_behind_a_link_or_in_a_directory_of_others_are_not_kept(tmp_path: pathlib.Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "a/records").symlink_to(tmp_path / "target")
    (tmp_path / "b/records").mkdir(parents=True)
    (tmp_path / "b/records").chmod(0o777)
    for place in ("a", "b"):
        with pytest.raises(VTorqueError, match="only root can write"):
            archive.add(PARCEL, UID, tmp_path / place)
    assert os.listdir(tmp_path / "target") == os.listdir(tmp_path / "b/records") == []


def test_full_disk_leaves_nothing_half_there(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And when there is room again, the record is taken."""
    write = archive.files.write

    def full(path: pathlib.Path, text: str, **how: t.Any) -> None:
        if path.name == "vtorque.log":
            raise VTorqueError(f"{path} was not written", os.strerror(errno.ENOSPC))
        write(path, text, **how)

    monkeypatch.setattr(archive.files, "write", full)
    with pytest.raises(VTorqueError, match="No space left"):
        archive.add(PARCEL, UID, tmp_path)
    assert os.listdir(tmp_path / "records") == []
    monkeypatch.undo()
    assert archive.add(PARCEL, UID, tmp_path)
