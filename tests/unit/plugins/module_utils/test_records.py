# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root's records, and the links by which the job's shell finds them."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import records
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
