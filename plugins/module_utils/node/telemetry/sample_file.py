# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The samples of a start on this node: a line of JSON for each, in the directory of its record, and never too many.

    {"began": 1790000000.0, "every_s": 30, "guests": {"vcn1-1": [0, "snapTask-alice-7.head"]}}
    {"at": 30.0, "guests": {"vcn1-1": [12.5, 0.1, 52428800, 4096, 0, 0, 0]}, "energy": [1500.0, 320.5]}

When the file reaches its limit, every second sample goes, and from then on only every second one is written: the
resolution is halved, and the length stays.
"""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

from ...errors import VTorqueError
from ...state import layout
from ...system import files
from ...wire import series

LIMIT = 1 << 19
"""Bytes of the file."""
_LINE_LIMIT = 1 << 18
"""Bytes of one sample: of some 2,000 guests."""


class SampleFile:
    """The file of one start, which only its worker writes.

    Args:
        record: the directory of the start's record on this node.
        head: `began` (seconds since the epoch), `every_s`, and for each guest its rank and tag.
        reader_uid: the job's owner, who may read it.
        limit: bytes of the file.
    """

    def __init__(
        self,
        record: pathlib.Path,
        head: t.Mapping[str, t.Any],
        reader_uid: int | None,
        limit: int = LIMIT,
    ) -> None:
        self._path, self._reader_uid, self._limit = record / layout.SAMPLES, reader_uid, limit
        self._head = json.dumps(head) + "\n"
        self._number, self._stride, self._size = 0, 1, 0

    def append(self, sample: t.Mapping[str, t.Any], *, last: bool = False) -> None:
        """Write a sample, unless the resolution is coarser by now.

        Args:
            sample: `at`, `guests` and `energy`.
            last: there is no other after it: it is written in any case.

        Raises:
            OSError: it was not written.
            VTorqueError: nor was the file.
        """
        number, self._number = self._number, self._number + 1
        if number % self._stride and not last:
            return
        line = json.dumps(sample, separators=(",", ":")) + "\n"
        if len(line) > min(_LINE_LIMIT, self._limit // 4):
            return
        if not self._size:
            files.make_record_directory(self._path.parent, self._reader_uid)
            self._write([])
        while self._size + len(line) > self._limit:
            self._halve()
        if number % self._stride and not last:
            return
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._size += os.write(fd, line.encode("ascii"))
        finally:
            os.close(fd)

    def _halve(self) -> None:
        lines = self._path.read_text(encoding="ascii").splitlines(keepends=True)[1:]
        self._stride *= 2
        self._write(lines[::2])

    def _write(self, lines: t.Sequence[str]) -> None:
        text = self._head + "".join(lines)
        files.write(self._path, text, reader_uid=self._reader_uid)
        self._size = len(text)


def read_series(record: pathlib.Path, node: str) -> series.NodeSeries | None:
    """Read the samples of a start as this node hands them over; None: it has none.

    Args:
        record: the directory of the start's record on this node.
        node: this node's name.
    """
    try:
        with (record / layout.SAMPLES).open(encoding="ascii") as stream:
            head, *samples = [json.loads(line) for line in stream.read(2 * LIMIT).splitlines()]
        return _series_of(node, head, samples, alone=was_alone(record))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _series_of(node: str, head: dict[str, t.Any], samples: list[dict[str, t.Any]], *, alone: bool) -> series.NodeSeries:
    found = []
    most = series.points_within(series.NODE_LIMIT, len(head["guests"]))
    named = sorted(head["guests"].items())[: series.NODE_LIMIT // (2 * series.POINT_BYTES)]
    for name, (rank, tag) in named:
        points = [(sample["at"], tuple(sample["guests"][name])) for sample in samples if name in sample["guests"]]
        text = series.format_points(series.thin(points, max(2, most)))
        found.append(series.GuestSeries(name, rank, tag, text))
    energies = [sample["energy"] for sample in samples if sample.get("energy")]
    node_j, share_j = energies[-1] if energies else (series.NOT_KNOWN, series.NOT_KNOWN)
    how = "" if not energies else series.MEASURED if alone else series.ESTIMATED
    energy_j = node_j if alone else share_j
    return series.NodeSeries(node, head["began"], head["every_s"], energy_j, how, tuple(found))


def was_alone(record: pathlib.Path) -> bool:
    """Return whether the job had this node for itself, as that was noted when it began.

    Args:
        record: the directory of the start's record on this node.
    """
    try:
        return files.read_json(record / layout.ALONE).get("others") == []
    except (OSError, VTorqueError):
        return False
