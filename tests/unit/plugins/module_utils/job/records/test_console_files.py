# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Consoles of a start are chosen, and shown harmless and bounded."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import console_files, job_record

from .job_records import GUEST, keep


@pytest.fixture
def with_consoles(tmp_path: pathlib.Path) -> job_record.JobRecord:
    """Guests on two nodes, one of whose consoles is here."""
    record = {"guests": [GUEST, {**GUEST, "rank": 1, "name": "vcn2-1", "node": "cn2"}]}
    directory = keep(tmp_path, "5.head.1", record)
    (directory / "vcn1-1.console.log").write_bytes(b"one\x1b[31m\r\n\xff\n")
    return job_record.find("5", tmp_path)


def test_consoles_are_chosen_by_guest_or_node(with_consoles: job_record.JobRecord) -> None:
    chosen = console_files.choose_consoles
    here = {"vcn1-1": with_consoles.directory / "vcn1-1.console.log"}
    assert chosen(with_consoles, guest=None, node=None) == here
    assert chosen(with_consoles, guest="vcn1-1", node=None) == here
    assert chosen(with_consoles, guest=None, node="cn1.example.org") == here
    with pytest.raises(UserFault, match=r"vcn2-1.*not on this host.*vmgr job console 5.head on cn2"):
        chosen(with_consoles, guest=None, node="cn2")
    with pytest.raises(UserFault, match=r"no console of guest vcn3-1.*vcn1-1, vcn2-1"):
        chosen(with_consoles, guest="vcn3-1", node=None)


def test_lines_are_harmless_and_bounded(with_consoles: job_record.JobRecord) -> None:
    path = with_consoles.directory / "vcn1-1.console.log"
    assert list(console_files.read_lines(path)) == ["one?[31m", "\ufffd"]
    path.write_bytes(b"first\nsecond\nthird\n")
    assert list(console_files.read_lines(path, limit=10)) == ["... the first 13 bytes are left out", "third"]


def test_only_files_are_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("link", "none"):
        with pytest.raises(UserFault):
            list(console_files.read_lines(tmp_path / name))
    with pytest.raises(UserFault, match="not a file"):
        list(console_files.read_lines(pathlib.Path("/dev/null")))
