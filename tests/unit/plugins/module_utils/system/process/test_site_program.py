# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program of the site: it hangs, floods, lies about its end, or is anybody's to write."""

from __future__ import annotations

import pathlib
import time

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import site_program


def program(directory: pathlib.Path, text: str, mode: int = 0o755) -> pathlib.Path:
    path = directory / "check"
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(mode)
    directory.chmod(0o755)
    return path


def test_program_that_ends_gives_its_status_and_its_standard_output_alone(tmp_path: pathlib.Path) -> None:
    path = program(tmp_path, "echo aside >&2; echo ERROR: disk; exit 3")
    assert site_program.run_site_program(path, 20.0) == (3, "ERROR: disk\n")


def test_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: pathlib.Path) -> None:
    path = program(tmp_path, f"setsid sh -c 'echo $$ >{tmp_path}/pid; exec sleep 1000' & echo EVENT: half; wait")
    with pytest.raises(SiteFault, match="did not end within 1 s"):
        site_program.run_site_program(path, 1.0)
    assert not pathlib.Path("/proc", (tmp_path / "pid").read_text("ascii").strip()).exists()


def test_output_without_an_end_is_read_and_bounded(tmp_path: pathlib.Path) -> None:
    path = program(tmp_path, "echo ERROR: first; head -c 5000000 /dev/zero; exit 0")
    status, text = site_program.run_site_program(path, 60.0)
    assert (status, len(text)) == (0, site_program.OUTPUT_BYTES)
    assert text.startswith("ERROR: first\n")


def test_what_a_program_leaves_running_with_its_output_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    path = program(tmp_path, f"sleep 1000 & echo $! >{tmp_path}/pid; echo EVENT: x; exit 0")
    began = time.monotonic()
    assert site_program.run_site_program(path, 500.0) == (0, "EVENT: x\n")
    assert time.monotonic() - began < 400


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_program_that_others_can_write_is_not_run(tmp_path: pathlib.Path, mode: int) -> None:
    path = program(tmp_path, f"touch {tmp_path}/ran", mode)
    with pytest.raises(SiteFault, match="written by others"):
        site_program.run_site_program(path, 20.0)
    assert not (tmp_path / "ran").exists()


def test_program_of_a_directory_that_others_can_write_is_not_run(tmp_path: pathlib.Path) -> None:
    path = program(tmp_path, "exit 0")
    tmp_path.chmod(0o777)
    with pytest.raises(SiteFault, match="written by others"):
        site_program.run_site_program(path, 20.0)


def test_program_that_is_missing_or_cannot_be_run_is_reported(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="No such file"):
        site_program.run_site_program(tmp_path / "missing", 20.0)
    with pytest.raises(SiteFault, match="no program that can be run"):
        site_program.run_site_program(program(tmp_path, "exit 0", 0o644), 20.0)
