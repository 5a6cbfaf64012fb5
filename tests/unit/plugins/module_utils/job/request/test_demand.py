# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes of memory as batch systems write them."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.demand import parse_batch_memory


@pytest.mark.parametrize(
    ("text", "mib"),
    [("400gb", 409600), ("1024", 0), ("2048kb", 2), ("1mw", 8), ("4G", 4096), ("much", None)],
)
def test_memory(text: str, mib: int | None) -> None:
    assert parse_batch_memory(text) == mib
