# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The line that the prologue has begun, taken by the job's shell: one that has ended is none."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell import ssh_stream
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout, login_fifos
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files


@pytest.fixture
def ends(tmp_path: pathlib.Path) -> t.Iterator[list[int]]:
    """The descriptors that ssh would have: of what is said, of its output, of its errors."""
    ways = ((login_fifos.SAID, os.O_RDONLY | os.O_NONBLOCK), (login_fifos.OUT, os.O_RDWR), (login_fifos.ERR, os.O_RDWR))
    opened = []
    for name, way in ways:
        os.mkfifo(tmp_path / name)
        opened.append(os.open(tmp_path / name, way))
    files.write(tmp_path / layout.EARLY, json.dumps({"token": "0123"}))
    yield opened
    for fd in opened:
        os.close(fd)


def test_one_that_lives_is_taken(tmp_path: pathlib.Path, ends: list[int]) -> None:
    early = ssh_stream.take(tmp_path)
    assert early is not None
    assert early.token == "0123"
    os.write(early.stdin, b"word")
    assert os.read(ends[0], 10) == b"word"
    for fd in (early.stdin, early.out, early.err):
        os.close(fd)


@pytest.mark.parametrize("last", [login_fifos.SAID, login_fifos.OUT])
def test_one_that_ends_while_it_is_taken_is_none(
    tmp_path: pathlib.Path, ends: list[int], monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """What comes back would be opened with nobody to write, and never tell an end."""
    before = os.open

    def opened(path: pathlib.Path, flags: int) -> int:
        fd = before(path, flags)
        if path.name == last:
            while ends:
                os.close(ends.pop())
        return fd

    with monkeypatch.context() as patch:
        patch.setattr(ssh_stream.os, "open", opened)
        assert ssh_stream.take(tmp_path) is None
    assert not ends
