# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kernel with pools of huge pages, as a tree of files: what is written there has its effect."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import hugepages

SIZES = (2048, 1048576)


class Pools:
    """Cells of a node, and their pools.

    Attributes:
        most: how many pages of 2M the kernel finds together in each cell.
        refuses: sysfs cannot be written.
    """

    def __init__(self, place: pathlib.Path, patch: pytest.MonkeyPatch, cells: int = 2) -> None:
        self.nodes, self.everywhere = place / "node", place / "hugepages"
        self.most = 10_000
        self.refuses = ""
        for kib in SIZES:
            self._write(self.everywhere / f"hugepages-{kib}kB/resv_hugepages", 0)
            for cell in range(cells):
                self.set(cell, 0, kib=kib)
        self.everywhere.mkdir(exist_ok=True)
        patch.setattr(hugepages, "NODES", self.nodes)
        patch.setattr(hugepages, "ALL", self.everywhere)
        patch.setattr(hugepages, "_set", self._kernel)

    @staticmethod
    def _write(path: pathlib.Path, number: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n", encoding="ascii")

    def _file(self, cell: int, kib: int, name: str) -> pathlib.Path:
        return self.nodes / f"node{cell}/hugepages/hugepages-{kib}kB/{name}"

    def total(self, cell: int, kib: int = 2048) -> int:
        return int(self._file(cell, kib, "nr_hugepages").read_text())

    def free(self, cell: int, kib: int = 2048) -> int:
        return int(self._file(cell, kib, "free_hugepages").read_text())

    def set(self, cell: int, total: int, used: int = 0, kib: int = 2048) -> None:
        self._write(self._file(cell, kib, "nr_hugepages"), total)
        self._write(self._file(cell, kib, "free_hugepages"), total - used)

    def use(self, cell: int, count: int, kib: int = 2048) -> None:
        self.set(cell, self.total(cell, kib), self.total(cell, kib) - self.free(cell, kib) + count, kib)

    def _kernel(self, pool: tuple[int, int], count: int) -> str:
        if self.refuses:
            return self.refuses
        cell, kib = pool
        used = self.total(cell, kib) - self.free(cell, kib)
        # the kernel takes no page from who has it
        self.set(cell, max(used, min(count, self.most if kib == 2048 else 0)), used, kib)
        return ""
