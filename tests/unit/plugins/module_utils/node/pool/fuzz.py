# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How hard the tests with random input try: little everywhere, VTORQUE_FUZZ times as much for who has the time."""

from __future__ import annotations

import os
import typing as t

import hypothesis

TIMES = int(os.environ.get("VTORQUE_FUZZ", "1"))


def examples(number: int) -> t.Callable[[t.Any], t.Any]:
    """So many examples, or a multiple of it; a fixture that they share is one on purpose."""
    return hypothesis.settings(max_examples=number * TIMES, suppress_health_check=list(hypothesis.HealthCheck))
