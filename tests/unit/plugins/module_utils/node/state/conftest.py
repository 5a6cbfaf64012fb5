# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests of a node's state share."""

from __future__ import annotations

import pathlib

import pytest


@pytest.fixture
def store(tmp_path: pathlib.Path) -> pathlib.Path:
    """A site's `checkpoint_dir`."""
    place = tmp_path / "store"
    place.mkdir(mode=0o700)
    return place
