# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key of munge, by which the daemons of one lab know each other and nobody else."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ..system import daemons
from ..system.state import State

NAME = "munge"
KEY_BYTES = 128
"""As the distribution's package makes it; munged takes 32 to 1024."""


def make(state: State, nodes: t.Iterable[str]) -> None:
    """Give one new key to all nodes that have not booted yet, among each one's other keys."""
    key = os.urandom(KEY_BYTES)
    for node in nodes:
        place = state.node(node) / "keys" / NAME
        place.touch(mode=0o600)
        place.write_bytes(key)


def read() -> bytes:
    """On a node: the lab's key."""
    return pathlib.Path(daemons.KEYS / NAME).read_bytes()
