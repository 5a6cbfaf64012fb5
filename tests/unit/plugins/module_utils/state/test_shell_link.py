# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The link by which a job's shell finds its start."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout, shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId


def test_link_of_a_job_that_ends_meanwhile_is_passed_over(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = (layout.run_directory(job_id, 1, tmp_path) for job_id in ("1.head", "2.head"))
    shell_link.point(ProcessId(11, 1), mine, tmp_path)
    shell_link.point(ProcessId(12, 1), other, tmp_path)
    readlink = pathlib.Path.readlink

    def read(path: pathlib.Path) -> pathlib.Path:
        if path.name == "12.1":
            path.unlink()
        return readlink(path)

    monkeypatch.setattr(pathlib.Path, "readlink", read)
    assert [link.name for link in shell_link.links_to(mine, tmp_path)] == ["11.1"]


def test_links_go_before_what_they_lead_to(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = layout.run_directory("7.head", 1, tmp_path)
    directory.mkdir(parents=True)
    (directory / "job_key").write_text("secret")
    shell_link.point(ProcessId(1, 1), directory, tmp_path)
    seen = []
    real = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path: (seen.append(shell_link.links_to(path, tmp_path)), real(path)))
    assert shell_link.remove_run(directory, tmp_path) == ("shell link 1.1", "run directory 7.head.1")
    assert seen == [()]
    assert shell_link.remove_run(directory, tmp_path) == ()


@pytest.mark.parametrize(("job_id", "name"), [("4711.lab", "0.4711"), ("72[1].head", "0.72")])
def test_job_whose_shell_is_no_process_of_now_has_a_link_by_its_number(
    tmp_path: pathlib.Path, job_id: str, name: str
) -> None:
    """Two jobs whose hooks have one parent do not take each other's link."""
    directory = layout.run_directory(job_id, 2, tmp_path)
    shell_link.point(shell_link.of_job(job_id), directory, tmp_path)
    shell_link.point(shell_link.of_job("9.lab"), layout.run_directory("9.lab", 1, tmp_path), tmp_path)
    assert [link.name for link in shell_link.links_to(directory, tmp_path)] == [name]
    assert not pathlib.Path("/proc/0").exists(), "no process can be mistaken for it"
