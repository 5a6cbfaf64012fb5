# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab of a test's own."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from lab.cluster import lifecycle
from lab.system.state import State


@pytest.fixture
def other(tmp_path: pathlib.Path) -> t.Iterator[State]:
    """A lab of the test's own, which it may break."""
    state = State(tmp_path / "other")
    yield state
    lifecycle.down(state)
