# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words in the output file of a job that did not run, wherever its owner's path leads."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import stat
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import answers, output_file

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/slurm"
LINES = ("vtorque: this job did not run: libvirt is away (try 1 of 3)", "  the job is tried again")
NOBODY = pwd.getpwnam("nobody")


def form_of(**facts: t.Any) -> dict[str, t.Any]:
    answer = json.loads((FIXTURES / "squeue-running.json").read_text())
    form = next(form for form in answer["jobs"] if form["job_id"] == 4)
    return {**form, "current_working_directory": "/home/alice", **facts}


def job_of(user: str, group: str) -> BatchJob:
    return answers._job(form_of(user_name=user, group_name=group), "4.lab")


@pytest.mark.parametrize(
    ("facts", "path"),
    [
        ({"standard_output": ""}, "/home/alice/slurm-4.out"),
        ({"standard_output": "", "array_job_id": 3, "array_task_id": 7}, "/home/alice/slurm-3_7.out"),
        ({"standard_output": "/scratch/%u/%A-%j%%.log"}, "/scratch/alice/4-4%.log"),
        ({"standard_output": "out/x.log"}, "/home/alice/out/x.log"),
        # as 22.05.8 named them: a to f
        ({"standard_output": "a-%N-%n-%s-%t.out"}, "/home/alice/a-cn1-0-batch-0.out"),
        ({"standard_output": "b-%4j-%3a-%A-%x-%J.out"}, "/home/alice/b-0004-4294967294-4-two-4.out"),
        (
            {"standard_output": "c-%03a-%5A-%N-%3t.out", "array_job_id": 3, "array_task_id": 7},
            "/home/alice/c-007-00003-cn1-000.out",
        ),
        ({"standard_output": "d-%%j-%q.out"}, "/home/alice/d-%j-%q.out"),
        ({"standard_output": "e\\%j.out"}, "/home/alice/e%j.out"),
        ({"standard_output": "f-%b-%i-%.out"}, "/home/alice/f-%b-%i-%.out"),
        ({"standard_output": "g-%x", "name": "n%jm"}, "/home/alice/g-n%jm"),
        ({"standard_output": "%"}, "/home/alice/%"),
        # not tried
        ({"standard_output": "%5N.log"}, ""),
        ({"standard_output": "%99j.log"}, ""),
        ({"standard_output": "%N.log", "batch_host": ""}, ""),
        ({"standard_output": "a\0b"}, ""),
        ({"standard_output": "a" * 5000}, ""),
        ({"standard_output": "", "batch_flag": False}, ""),
        ({"standard_output": 7}, ""),
        ({"current_working_directory": None}, ""),
    ],
)
def test_output_file_is_that_of_slurm_or_none(facts: dict[str, t.Any], path: str) -> None:
    assert answers.read_job(form_of(**facts), "4.lab").output == path


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory of the job's owner."""
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o011)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
    return home


def append(path: pathlib.Path | str, user: str = "nobody", group: str = "") -> bool:
    return output_file.append(job_of(user, group), str(path), LINES, timeout_s=60)


def test_words_are_appended_by_the_owner_for_the_owner_alone(place: pathlib.Path) -> None:
    assert append(place / "a new one")
    assert append(place / "a new one")
    facts = (place / "a new one").stat()
    assert (place / "a new one").read_text() == "\n".join(LINES * 2) + "\n"
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (NOBODY.pw_uid, 0o600)


def test_file_of_another_is_not_touched_whatever_leads_to_it(place: pathlib.Path) -> None:
    secret = place.parent / "of-root"
    secret.write_text("root's\n")
    (place / "link").symlink_to(secret)
    assert [append(secret), append(place / "link")] == [False, False]
    assert secret.read_text() == "root's\n"


def test_pipe_without_a_reader_holds_nobody_up(place: pathlib.Path) -> None:
    os.mkfifo(place / "pipe", 0o666)
    os.chown(place / "pipe", NOBODY.pw_uid, NOBODY.pw_gid)
    assert not append(place / "pipe")


@pytest.mark.parametrize("path", ["/dev/full", "/nowhere/x", "", "/"])
def test_path_that_takes_nothing_harms_nobody(path: str) -> None:
    assert not append(path)


@pytest.mark.parametrize("user", ["root", "who-is-that"])
def test_nothing_is_written_as_root_or_as_nobody_known(place: pathlib.Path, user: str) -> None:
    assert not append(place / "x", user)
    assert not (place / "x").exists()


@pytest.mark.parametrize("group", ["root", "games", "no-such-group"])
def test_nothing_is_written_for_a_group_that_is_not_the_owners(place: pathlib.Path, group: str) -> None:
    assert not append(place / "x", group=group)
    assert not (place / "x").exists()
