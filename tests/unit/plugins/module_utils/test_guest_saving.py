# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest must not have to be saved, and what is said of it before and after."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.guest_saving import (
    NO_MOVES,
    REASONS,
    REASONS_OF_JOBS,
    describe_suspension,
    judge_survival,
    objections_to_checkpoint,
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
def test_judge_survival_of_a_job_with_a_part_in_the_way_names_it_for_checkpoint_and_move(name: str) -> None:
    assert objections_to_checkpoint({name, "anything"}) == (REASONS_OF_JOBS[name],)
    survival = judge_survival("pause", {name})
    assert survival.checkpoint == f"no, because {REASONS_OF_JOBS[name]}"
    assert survival.moved == f"no, because {NO_MOVES}; {REASONS_OF_JOBS[name]}"
    assert survival.suspended == describe_suspension("pause", {name})


def test_judge_survival_of_a_job_without_any_promises_a_checkpoint_and_no_move() -> None:
    survival = judge_survival("save", ())
    assert survival.checkpoint == "yes, with checkpoint=on or checkpoint_every="
    assert (survival.suspended, survival.moved) == ("its guests are saved to disk", f"no, because {NO_MOVES}")
