# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of the cores for virtual I/O of a start on this node, in the directory of its record, and never too many.

    {"cores": "1-3", "least": 1, "most_used": 2, "count": 2, "changes": [[1790000012.1, 2, 0.98], ...]}

Each change has its time, the cores in use from then on, and the load that led to it, in cores.  The first ones stay.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from ...errors import VTorqueError
from ...frozen import frozen
from ...state import layout
from ...system import files
from ..system import cpus

LIMIT = 256
"""Changes that are written down; of more their number is."""


@frozen
class Summary:
    """What a start has used of its cores for virtual I/O on this node.

    Attributes:
        most_used: the most of them at a time.
        count: how often that was changed.
    """

    most_used: int
    count: int


class Changes:
    """The file of one start, which only its worker writes.

    Args:
        record: the directory of the start's record on this node.
        cores: for virtual I/O.
        least: how many of them are in use in any case.
        reader_uid: the job's owner, who may read it.
    """

    def __init__(self, record: pathlib.Path, cores: cpus.Cores, least: int, reader_uid: int | None) -> None:
        self._path, self._reader_uid = record / layout.IO_CORES, reader_uid
        self._cores, self._least, self._most_used = cores, least, least
        self._count, self._changes = 0, list[tuple[float, int, float]]()

    @property
    def is_full(self) -> bool:
        """Return whether changes are only counted by now."""
        return self._count > LIMIT

    def begin(self) -> None:
        """Write down with which cores the start begins; as `add`."""
        files.make_record_directory(self._path.parent, self._reader_uid)
        self._write()

    def add(self, at: float, used: int, load: float) -> None:
        """Write down a change.

        Args:
            at: when, in seconds since the epoch.
            used: cores in use from then on.
            load: that led to it, in cores.

        Raises:
            OSError: it was not written.
            VTorqueError: nor was the file.
        """
        self._count += 1
        self._most_used = max(self._most_used, used)
        if self._count <= LIMIT:
            self._changes.append((round(at, 1), used, round(load, 2)))
        self._write()

    def _write(self) -> None:
        content: dict[str, t.Any] = {"cores": cpus.format_cores(self._cores), "least": self._least}
        content |= {"most_used": self._most_used, "count": self._count, "changes": self._changes}
        files.write(self._path, json.dumps(content), reader_uid=self._reader_uid)


def read_summary(record: pathlib.Path) -> Summary | None:
    """Return what a start has used of its cores for virtual I/O; None: it had none, or it is not known.

    Args:
        record: the directory of the start's record on this node.
    """
    try:
        content = files.read_json(record / layout.IO_CORES)
        return Summary(int(content["most_used"]), int(content["count"]))
    except (OSError, KeyError, TypeError, ValueError, VTorqueError):
        return None
