# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles do on hosts of a Slurm site, by Ansible itself: Slurm's commands have recorded answers."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

from ..plugins.modules.test_slurm_info import commands
from . import playing

TEMPLATE = "batch/slurm/vtorque_job_submit.lua.j2"
FILES = {"mikelangelo.vtorque.host_files": {"entries": "{{ __frontend_batch_entries }}"}}
GONE = {"mikelangelo.vtorque.host_files": {"entries": "{{ __frontend_batch_removed }}"}}
LINES = {"ansible.builtin.debug": {"msg": "{{ __frontend_words }}"}}


def play_front_end(place: pathlib.Path, *tasks: t.Any, wanted: bool) -> list[str]:
    """Play the check of a front end, and then tasks; return the lines that the site reads.

    Args:
        place: has the commands of Slurm, and gets what is placed.
        tasks: behind the check.
        wanted: is `frontend_slurm_job_submit` set?
    """
    paths = {"__frontend_slurm_place": str(place / "slurm"), "__frontend_slurm_bin": str(place / "bin")}
    here = {"ansible.builtin.set_fact": paths}
    played = [here, playing.included("slurm", "frontend", "check.yml"), *tasks, LINES]
    good, results = playing.play("slurm", place, "frontend", played, frontend_slurm_job_submit=wanted)
    assert good
    return [line for result in results if isinstance(result.get("msg"), list) for line in result["msg"]]


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """A place with Slurm's commands."""
    commands(tmp_path / "bin")
    return tmp_path


def test_front_end_has_no_module_for_plain_sbatch_by_itself(place: pathlib.Path) -> None:
    assert play_front_end(place, FILES, wanted=False) == []
    assert not (place / "slurm").exists()


def test_front_end_gets_the_module_where_the_site_wants_it_and_the_lines_that_call_it(place: pathlib.Path) -> None:
    lines = play_front_end(place, FILES, wanted=True)
    module = place / "slurm/vtorque_job_submit.lua"
    text = templates.render(TEMPLATE, site_dir=None, prefix="/usr/local/vtorque", feature="")
    assert module.read_text() == text
    assert 'local FEATURE = ""' in text
    assert "write JobSubmitPlugins=lua into slurm.conf" in lines[0]
    assert f'`local is_there, vtorque = pcall(dofile, "{module}")`' in lines[1]


@pytest.mark.parametrize("task", [FILES, GONE], ids=["no longer wanted", "uninstalled"])
def test_module_goes_and_what_the_site_has_beside_it_stays(place: pathlib.Path, task: t.Any) -> None:
    site = {"ansible.builtin.copy": {"content": "-- its own\n", "dest": str(place / "slurm/site.lua"), "mode": "0644"}}
    play_front_end(place, FILES, site, {**task, "vars": {"frontend_slurm_job_submit": False}}, wanted=True)
    assert [path.name for path in (place / "slurm").iterdir()] == ["site.lua"]


def test_nothing_is_left_of_it(place: pathlib.Path) -> None:
    play_front_end(place, FILES, GONE, wanted=True)
    assert not (place / "slurm").exists()
