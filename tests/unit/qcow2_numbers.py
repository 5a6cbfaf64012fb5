# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers of a qcow2's header: where they stand, and which are worth a try."""

from __future__ import annotations

import hypothesis.strategies as st

FIELDS = {
    4: ">I", 8: ">Q", 16: ">I", 20: ">I", 24: ">Q", 32: ">I", 36: ">I", 40: ">Q", 48: ">Q", 56: ">I", 60: ">I",
    64: ">Q", 72: ">Q", 80: ">Q", 88: ">Q", 96: ">I", 100: ">I", 104: ">B", 112: ">I", 116: ">I",
}  # fmt: skip
"""Where each number of a qcow2's header stands (qcow2.txt); the last two are of its first extension."""
EDGES = sorted({*range(10), *(value for bit in range(65) for value in ((1 << bit) - 1, 1 << bit, (1 << bit) + 1))})
NUMBERS = st.one_of(st.sampled_from(EDGES), st.integers(0, (1 << 64) - 1))
