# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A start that the batch system gives up while its playbook is played, and the time that a start took."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.ansible_process import (
    PlaybookCall,
    PlaybookRunner,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.server_queries import StartWatch
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import supervised


def controller(place: pathlib.Path, answer: str) -> Policy:
    """A site whose squeue gives this answer, and counts how often it was asked."""
    program = place / "squeue"
    program.write_text(f"#!/bin/sh\necho asked >>{place}/calls\n{answer}\n")
    program.chmod(0o755)
    return Policy(batch_system="slurm", pbs_qsub_on_nodes=f"{place}/qsub")


def test_given_up_once_heard_is_not_asked_for_again(tmp_path: pathlib.Path) -> None:
    columns = "%-12s%-12s%-12s%-12s%-12s%-42s%-24s%-12s\\n"
    given_up = StartWatch(controller(tmp_path, f"printf '{columns}' 7 7 N/A N/A N/A lab CANCELLED 0"), "7.lab", 1)
    assert not given_up.is_abandoned
    assert [given_up.check(), given_up.check(), given_up.is_abandoned] == [True, True, True]
    assert (tmp_path / "calls").read_text() == "asked\n"


def test_suspension_gives_no_start_up_and_is_known_when_its_guests_are_ready(tmp_path: pathlib.Path) -> None:
    columns = "%-12s%-12s%-12s%-12s%-12s%-42s%-24s%-12s\\n"
    given_up = StartWatch(controller(tmp_path, f"printf '{columns}' 7 7 N/A N/A N/A lab SUSPENDED 0"), "7.lab", 1)
    assert [given_up.check(), given_up.is_suspended()] == [False, True]


def test_controller_that_does_not_answer_ends_nothing(tmp_path: pathlib.Path) -> None:
    given_up = StartWatch(controller(tmp_path, "echo no >&2; exit 1"), "7.lab", 1)
    assert not given_up.check()


def test_program_that_is_not_wanted_any_more_ends_long_before_its_deadline(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "UNWANTED_ASK_S", 0.05)
    answers = iter([False, False, True])
    with (tmp_path / "log").open("wb") as log:
        command = ["/bin/sh", "-c", "trap 'echo ended; exit 3' TERM; read word; echo $word; sleep 600 & wait"]
        stdin = b"given\n"
        ended = supervised.run(command, timeout_s=500, log=log, stdin=stdin, unwanted=lambda: next(answers))
    assert ended[0] is None
    assert (tmp_path / "log").read_text() == "given\nended\n"


def test_program_that_stays_wanted_runs_to_its_end(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "UNWANTED_ASK_S", 0.01)
    with (tmp_path / "log").open("wb") as log:
        command = ["/bin/sh", "-c", "sleep 0.2; cat; exit 5"]
        ended = supervised.run(
            command, timeout_s=500, log=log, stdin=b"x" * 2_000, capture=True, unwanted=lambda: False
        )
    assert (ended[0], len(ended[1])) == (5, 2_000)


def test_player_that_was_ended_leaves_no_temporary_files_of_ansible(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "play"
    places = 'ansible-local-$$abcd1234 ansible-local-1abcd1234 "$TMPDIR/pymp-x"'
    program.write_text(f"#!/bin/sh\ncd {tmp_path}/ansible && mkdir {places}\nexit 4\n")
    program.chmod(0o755)
    with (tmp_path / "log").open("wb") as log:
        assert PlaybookRunner((str(program),), tmp_path).run(PlaybookCall((), {}, 60, log)) == 4
    assert [path.name for path in (tmp_path / "ansible").iterdir()] == ["ansible-local-1abcd1234"]  # it lives
