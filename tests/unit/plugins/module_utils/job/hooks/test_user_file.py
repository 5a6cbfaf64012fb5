# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of the user's reaches root as it was submitted, read with the user's rights, or not at all."""

from __future__ import annotations

import hashlib
import os
import pathlib
import tempfile
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import user_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import Group, Owner

ALICE = Owner(user="alice", uid=4242, gid=4243, group="chem", home="/home/alice", shell="/bin/sh",
              groups=(Group("project", 4244),))  # fmt: skip
TEXT = b"packages: [make]\n"
LIMIT = 64


@pytest.fixture
def place() -> t.Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory() as place:  # the ways to pytest's own are closed to others
        pathlib.Path(place).chmod(0o755)
        yield pathlib.Path(place)


def read(path: pathlib.Path, content: bytes = TEXT) -> bytes:
    return user_file.read("metadata", str(path), hashlib.sha256(content).hexdigest(), ALICE, limit=LIMIT)


def test_submitted_file_is_read_as_user_and_group(place: pathlib.Path) -> None:
    for mode, uid, gid in ((0o400, ALICE.uid, 0), (0o040, 0, ALICE.gid), (0o040, 0, 4244), (0o004, 0, 0)):
        path = place / f"{mode:o}{gid}"
        path.write_bytes(TEXT)
        os.chown(path, uid, gid)
        path.chmod(mode)
        assert read(path) == TEXT


def test_roots_rights_open_nothing(place: pathlib.Path) -> None:
    path = place / "secret"
    path.write_bytes(TEXT)
    path.chmod(0o600)
    (place / "link").symlink_to(path)
    for name in ("secret", "link"):
        with pytest.raises(UserFault, match="cannot be read on this node: Permission denied"):
            read(place / name)


def test_missing_file_or_directory_is_refused(place: pathlib.Path) -> None:
    with pytest.raises(UserFault, match="No such file"):
        read(place / "gone")
    with pytest.raises(UserFault, match="directory"):
        read(place)


def test_another_content_is_not_used(place: pathlib.Path) -> None:
    (place / "changed").write_bytes(TEXT + b"#\n")
    (place / "huge").write_bytes(b"")
    os.truncate(place / "huge", 1 << 40)
    os.mkfifo(place / "fifo")
    (place / "fifo").chmod(0o666)
    for path in (place / "changed", place / "huge", place / "fifo", pathlib.Path("/dev/zero")):
        with pytest.raises(UserFault, match="was changed after the job was submitted"):
            read(path)


def test_server_that_is_away_is_the_sites_fault(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_file, "USER_FILE_READ_S", 0.2)
    stuck = place / "stuck"
    stuck.write_text("#!/bin/sh\nexec sleep 1000\n")
    stuck.chmod(0o755)
    with pytest.raises(SiteFault, match="could not be read in"):
        user_file.read("metadata", "/x", "0" * 64, ALICE, limit=LIMIT, become=[str(stuck)])
