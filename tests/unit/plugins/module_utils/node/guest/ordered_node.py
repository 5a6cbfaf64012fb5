# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose guests take orders, and end them as a test says."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.agent import Channel, OrderResult
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline


class OrderedNode:
    """A node with guests of one start of a job.

    Attributes:
        told: the script that each guest was ordered last, by its name.
        done: how each ends it, by its name; who is not there ends it well.
    """

    def __init__(
        self, place: pathlib.Path, ordering: types.ModuleType, monkeypatch: pytest.MonkeyPatch, job_id: str,
        **settings: t.Any,
    ) -> None:  # fmt: skip
        self.settings = NodeSettings("n1", 1, state_dir=place / "state", run_dir=place / "run", **settings)
        self.job_id = job_id
        self.reported: dict[str, str] = {}
        self.done: dict[str, OrderResult] = {}
        monkeypatch.setattr(ordering, "order_all", self._order_all)

    def _order_all(self, orders: t.Sequence[tuple[Channel, str]], deadline: Deadline) -> dict[str, OrderResult]:
        self.reported = {channel.name: script for channel, script in orders}
        return {name: self.done.get(name, OrderResult(0, "")) for name in self.reported}

    def directory(self, rank: int) -> pathlib.Path:
        return self.settings.start_dir(self.job_id, 1) / f"vn1-{rank + 1}"

    def add_guest(self, rank: int, kind: str = "slg") -> GuestFile:
        stored = GuestFile(rank, rank + 1, f"vn1-{rank + 1}", "52:54:00:00:01:01", "u", "f00d", 1001, "d", kind=kind)
        self.directory(rank).mkdir(parents=True)
        write_guest_file(self.directory(rank), stored)
        return stored
