# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes as people read them."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import text

GIB = 2**30


@pytest.mark.parametrize(
    ("mib", "printed"), [(24576, "24G"), (1536, "1536M"), (2**21, "2T"), (0, "0M"), (1, "1M"), (2**20 + 1024, "1025G")]
)
def test_mib_of_a_request_lose_nothing(mib: int, printed: str) -> None:
    assert text.format_mib(mib) == printed


@pytest.mark.parametrize(
    ("count", "printed"), [(0, "0 MiB"), (310 * 2**20, "310 MiB"), (1288490189, "1.2 GiB"), (2048 * GIB, "2048.0 GiB")]
)
def test_bytes_of_a_sentence_have_their_unit(count: int, printed: str) -> None:
    assert text.format_bytes(count) == printed


@pytest.mark.parametrize(
    ("count", "printed"),
    [(0, "0"), (999, "999"), (1000, "1.0K"), (1288490189, "1.2G"), (325058560, "310M"), (24576 * 2**20, "24G")],
)
def test_bytes_of_a_column_are_short(count: int, printed: str) -> None:
    assert text.format_bytes_short(count) == printed


@pytest.mark.parametrize(
    ("count", "printed"), [(0, ""), (310 * 2**20, "310M"), (20 * GIB, "20.0G"), (20 * GIB + GIB // 2, "20.5G"),
                         (1536 * GIB, "1.5T")]
)  # fmt: skip
def test_disks_of_nearly_the_same_size_differ(count: int, printed: str) -> None:
    assert text.format_disk_bytes(count) == printed


@pytest.mark.parametrize(
    ("size", "mib"), [("20G", 20480), ("1.5G", 1536), ("512", 512), ("1 GiB", 1024), ("2048k", 2), ("1k", None),
                      ("", None), ("-1G", None), ("1P", None), ("1G\n", None)],
)  # fmt: skip
def test_parse_mib_size_as_users_write_it_returns_whole_mib_or_none(size: str, mib: int | None) -> None:
    assert text.parse_mib(size) == mib
