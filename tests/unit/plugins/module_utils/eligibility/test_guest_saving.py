# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest must not have to be saved, and what is said of it before and after."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.eligibility.guest_saving import (
    NO_STORE,
    REASONS,
    REASONS_OF_JOBS,
    REASONS_OF_MOVES,
    SESSION,
    TERMINAL,
    describe_suspension,
    judge_survival,
    objections_to_checkpoint,
    objections_to_move,
    objections_to_saving,
)


@pytest.mark.parametrize("name", REASONS)
def test_each_part_in_the_way_keeps_a_guest_in_memory_and_is_named(name: str) -> None:
    assert objections_to_saving({name, "anything"}) == (REASONS[name],)
    assert describe_suspension("save", {name}).endswith(f"not saved: {REASONS[name]}")
    assert REASONS[name] not in describe_suspension("pause", {name})


def test_guest_without_any_of_them_is_saved() -> None:
    assert objections_to_saving({"nfs"}) == ()
    assert describe_suspension("save", ()) == "its guests are saved to disk"


@pytest.mark.parametrize("name", REASONS_OF_JOBS)
def test_judge_survival_of_a_job_with_a_part_in_the_way_names_it_for_the_checkpoint(name: str) -> None:
    assert objections_to_checkpoint({name, "anything"}) == (REASONS_OF_JOBS[name],)
    survival = judge_survival("pause", {name})
    assert survival.checkpoint == f"no, because {REASONS_OF_JOBS[name]}"
    assert survival.suspended == describe_suspension("pause", {name})


@pytest.mark.parametrize("name", REASONS_OF_MOVES)
def test_judge_survival_of_a_job_with_a_part_in_the_way_of_a_move_names_it(name: str) -> None:
    assert objections_to_move({name, "anything"}) == (REASONS_OF_MOVES[name],)
    assert judge_survival("pause", {name}).moved == f"no, because {REASONS_OF_MOVES[name]}"


def test_judge_survival_of_a_terminal_keeps_no_guest_on_its_node() -> None:
    assert judge_survival("pause", {TERMINAL, NO_STORE, SESSION}).moved.startswith("yes")


def test_judge_survival_of_a_job_without_any_promises_a_checkpoint_and_a_move() -> None:
    survival = judge_survival("save", ())
    assert survival.checkpoint == "yes, with checkpoint=on or checkpoint_every="
    assert (survival.suspended, survival.moved) == (
        "its guests are saved to disk",
        "yes, to a spare node by an administrator",
    )
