# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many of all."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.value_types import (
    BadValue,
    count_of,
    part_of_all,
)


@pytest.mark.parametrize(
    ("part", "everything", "count"),
    [
        ("3", 2, 3), (3, 1000, 3), (0, 10, 0), ("5 %", 100, 5), ("5%", 99, 4), ("100 %", 7, 7), ("2 %", 10, 0),
        ("max(2, 2 %)", 2, 2), ("max(2, 2 %)", 149, 2), ("max(2, 2 %)", 150, 3), ("max( 10%,4 )", 50, 5),
    ],
)  # fmt: skip
def test_part_of_all(part: object, everything: int, count: int) -> None:
    assert count_of(str(part_of_all().read(part)), everything) == count


@pytest.mark.parametrize(
    "value", ["", "two", "-1", "2.5", 2.5, True, None, "101 %", "max(2)", "max(1,2,3)", "min(1, 2)", "max(2, x)", "٣"]
)
def test_list_with_all_and_more_is_refused(value: object) -> None:
    with pytest.raises(BadValue, match="max"):
        part_of_all().read(value)
