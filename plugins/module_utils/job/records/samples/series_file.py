# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the nodes of a job have measured of its guests, in one file beside its record."""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

from ....errors import VTorqueError
from ....state import layout
from ....system import files
from ....wire.form import FormError, from_dict, to_dict
from ....wire.series import JobSeries, NodeSeries, join_series

if t.TYPE_CHECKING:
    from ..job_record import JobRecord

LIMIT = 2 << 20
"""Bytes of the file."""
MOST_J = 1e18
"""Joules of a node that a record may have; more is no figure."""


def write_series(steps: pathlib.Path, record: pathlib.Path, reader_uid: int | None) -> tuple[NodeSeries, ...]:
    """Put what the nodes handed over into one file; nothing is written where they had nothing.

    Args:
        steps: the run directory of the start, with a file for each node.
        record: the directory of the record.
        reader_uid: the job's owner.

    Returns:
        What each node measured.

    Raises:
        VTorqueError: it was not written.
    """
    found = []
    for path in sorted(steps.glob(layout.StepFile.SERIES.pattern)):
        with contextlib.suppress(OSError, VTorqueError):
            found += [from_dict(NodeSeries, one) for one in files.read_json(path).get(layout.StepFile.SERIES, ())]
    if found:
        text = json.dumps(to_dict(join_series(found)))
        if len(text) <= LIMIT:
            files.write(record / layout.SERIES, text, reader_uid=reader_uid)
    return tuple(found)


def energy_of(nodes: t.Iterable[NodeSeries]) -> dict[str, dict[str, t.Any]]:
    """Return the energy of each node that can measure it, as a record holds it.

    Args:
        nodes: what each measured.
    """
    return {
        one.node: {"joules": round(one.energy_j, 1), "how": one.energy_how}
        for one in nodes
        if one.energy_how and one.energy_j >= 0
    }


def read_energy(record: JobRecord) -> list[tuple[float, str]]:
    """Return the joules of each node that could measure them, and how it did (`series.MEASURED`, `series.ESTIMATED`).

    Args:
        record: of the start, as `energy_of` has filled it; what is not of that form is left out.
    """
    nodes = record.raw.get("energy")
    found = []
    for one in nodes.values() if isinstance(nodes, dict) else ():
        joules = one.get("joules") if isinstance(one, dict) else None
        if isinstance(joules, (int, float)) and not isinstance(joules, bool) and 0 <= joules < MOST_J:
            found.append((float(joules), str(one.get("how"))))
    return found


def check_series(content: bytes) -> JobSeries:
    """Read such a file strictly.

    Args:
        content: of the file.

    Raises:
        FormError: it is none.
    """
    if len(content) > LIMIT:
        raise FormError(layout.SERIES, f"is longer than {LIMIT} bytes")
    try:
        data = json.loads(content.decode("ascii"))
    except (ValueError, RecursionError):
        raise FormError(layout.SERIES, "is not JSON") from None
    return from_dict(JobSeries, data, layout.SERIES)


def read_series(record: pathlib.Path) -> JobSeries | None:
    """Read the series beside a record; None: there are none, or they are not of the form.

    Args:
        record: the directory of the record.
    """
    try:
        return check_series((record / layout.SERIES).read_bytes()[: LIMIT + 1])
    except (OSError, FormError):
        return None
