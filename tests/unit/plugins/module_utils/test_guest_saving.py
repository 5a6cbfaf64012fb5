# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest must not have to be saved, and what is said of it before and after."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.guest_saving import (
    REASONS,
    describe_suspension,
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
