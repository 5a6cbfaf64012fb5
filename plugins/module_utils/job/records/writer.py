# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one writer of `record.json`, on the mother superior; `schema` says what it may hold."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ...effects import leaves_nothing
from ...state import layout
from ...system import files
from ...wire.form import FormError
from . import schema


@leaves_nothing
def read_former(directory: pathlib.Path) -> dict[str, t.Any]:
    """Return the record as an earlier step of the start wrote it; {} where there is none.

    Args:
        directory: of the record.

    Raises:
        VTorqueError: it cannot be read.
    """
    try:
        return files.read_json(directory / layout.RECORD, limit=schema.LIMIT)
    except FileNotFoundError:
        return {}


def write(
    directory: pathlib.Path, job_id: str, start: int, record: t.Mapping[str, t.Any], *, reader_uid: int | None
) -> str:
    """Write the record of a start, which outlives the job.

    A record that is not of the form is written all the same: with it the job's owner would lose all that is known.  A
    front end will not take it, so that it stays on this node.

    Args:
        directory: of the record; it exists.
        job_id: the job.
        start: its start_count.
        record: what is known; version, job and start are added.
        reader_uid: the job's owner, who may read it; None: not known.

    Returns:
        What is not of the form, in words for a log; "" when all is.

    Raises:
        VTorqueError: it was not written.
    """
    head = {"version": schema.VERSION, "job_id": job_id, "start": start}
    text = json.dumps(head | dict(record) | head)
    files.write(directory / layout.RECORD, text, reader_uid=reader_uid)
    try:
        schema.check(text.encode("ascii"), job_id, start)
    except FormError as error:
        return f"{error}: it is kept on this node alone"
    return ""
