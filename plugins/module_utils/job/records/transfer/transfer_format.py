# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's record on its way from the mother superior to the front end: two lines of JSON, then the files they name.

    {"version": 2, "job_id": "4711.head", "start": 1}
    {"files": [["record.json", 1234], ["vtorque.log", 5678]]}

The first comes as soon as the epilogue begins: the batch server may know nothing of the job any more when that has
ended.  What comes is a node's word: its form is strict, its size bounded, and nothing in it is a path.

rsync 3.5 under `rrsync -wo` takes from a hostile node a file of 3 GiB, a link to /etc/shadow by the name of the record,
and two thousand files more: its sender names files and bounds, and it speaks before the server was asked.  It would
need a directory of its own and the same checks behind it, and takes 140 ms for what is packed and read here in 0.06 ms.
Torque returns files as the job's user, who could write their own record; after a failed prologue it returns none.  This
form goes when the batch system carries files of root's.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import typing as t

from ....errors import VTorqueError
from ....frozen import frozen
from ....state.layout import CONSOLE_END, LOG, RECORD, SAMPLES, SERIES
from ....wire.form import FormError
from ....wire.messages import HOST_NAME, JOB_ID
from .. import schema
from ..samples import series_file

VERSION = 2
LINE_LIMIT = 1 << 14
TEXT_LIMIT = 1 << 18
"""Bytes of a log or console that are handed over: its end, where it is longer; the node keeps more."""
SAMPLES_LIMIT = 1 << 15
"""Bytes of the samples of a job that runs: the last ones."""
MOST_FILES = 35
"""The record, the log, the series of figures, and the consoles of 32 guests; others stay on the node."""


@frozen
class Announcement:
    """Which record will come; of a job that runs what there is so far (`running.py`)."""

    job_id: str
    start: int
    running: bool = False


@frozen
class Parcel:
    """What is handed over of one start of a job.

    Attributes:
        files: content by name; `record.json` is among them.
    """

    job_id: str
    start: int
    files: dict[str, bytes]


def limit_of(name: str, *, running: bool = False) -> int:
    """How many bytes a file of this name may have.

    Args:
        name: of the file.
        running: its job runs.

    Raises:
        FormError: no file of this name is handed over.
    """
    if name == RECORD:
        return schema.LIMIT
    if running:
        if name == SAMPLES:
            return SAMPLES_LIMIT
        raise FormError("the record", f"holds a file {name[:80]!r}, which is not shown of a job that runs")
    if name == SERIES:
        return series_file.LIMIT
    if name == LOG or (name.endswith(CONSOLE_END) and re.fullmatch(HOST_NAME, name.removesuffix(CONSOLE_END))):
        return TEXT_LIMIT
    raise FormError("the record", f"holds a file {name[:80]!r}, which is none of a record's")


def pack(job_id: str, start: int, directory: pathlib.Path, *, running: bool = False) -> Parcel:
    """What there is to hand over.

    Args:
        job_id: the job.
        start: its start.
        directory: of its record.
        running: the job runs.

    Raises:
        VTorqueError: there is no record, or it cannot be read.
    """
    names = [RECORD, SAMPLES] if running else [RECORD, LOG, SERIES, *_consoles(directory)]
    files: dict[str, bytes] = {}
    try:
        for name in names[:MOST_FILES]:
            if name == RECORD or (directory / name).exists():
                files[name] = _end_of(directory / name, limit_of(name, running=running))
    except OSError as error:
        raise VTorqueError(f"the record of job {job_id}", str(error)) from error
    return Parcel(job_id, start, files)


def staying(directory: pathlib.Path) -> int:
    """How many consoles of a record are not handed over.

    Args:
        directory: of the record.
    """
    return max(0, len(_consoles(directory)) + len((RECORD, LOG, SERIES)) - MOST_FILES)


def _consoles(directory: pathlib.Path) -> list[str]:
    return sorted(path.name for path in directory.glob(f"*{CONSOLE_END}"))


def _end_of(path: pathlib.Path, limit: int) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - limit))
        return stream.read(limit)


def format_announcement(job_id: str, start: int, *, running: bool = False) -> bytes:
    """Return the announcement as it goes over the wire."""
    return _line({"version": VERSION, "job_id": job_id, "start": start, **({"running": True} if running else {})})


def format_parcel(parcel: Parcel) -> bytes:
    """Return the parcel as it goes over the wire, after its announcement."""
    sizes = [[name, len(content)] for name, content in parcel.files.items()]
    return _line({"files": sizes}) + b"".join(parcel.files.values())


def _line(data: dict[str, t.Any]) -> bytes:
    return json.dumps(data, ensure_ascii=True).encode("ascii") + b"\n"


def read_announcement(stream: t.BinaryIO) -> Announcement:
    """Read the first line, strictly.

    Raises:
        FormError: it is not of the form.
    """
    known = {"version", "job_id", "start"}
    head = _read_line(stream, known, {*known, "running"})
    job_id, start = head["job_id"], head["start"]
    if head["version"] != VERSION or not isinstance(job_id, str) or not re.fullmatch(JOB_ID, job_id):
        raise FormError("the record", "is of another version, or of no job")
    if isinstance(start, bool) or not isinstance(start, int) or not 0 <= start < 2**31:
        raise FormError("the record", "is of no start")
    if head.get("running", True) is not True:
        raise FormError("the record", "is of a job that neither runs nor has ended")
    return Announcement(job_id, start, "running" in head)


def _read_line(stream: t.BinaryIO, *keys: set[str]) -> dict[str, t.Any]:
    line = stream.readline(LINE_LIMIT)
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise FormError("the record", "does not begin with two lines of JSON") from None
    if not isinstance(data, dict) or set(data) not in keys:
        raise FormError("the record", f"is not of the form of version {VERSION}")
    return data


def read(stream: t.BinaryIO, announcement: Announcement) -> Parcel:
    """Read the parcel that was announced, strictly, and never more than it may hold; its record is one (`record_form`).

    Raises:
        FormError: it is not of the form, too long or too short.
    """
    sizes = _read_line(stream, {"files"})["files"]
    if not isinstance(sizes, list) or not 1 <= len(sizes) <= MOST_FILES:
        raise FormError("the record", f"does not hold 1 to {MOST_FILES} files")
    files: dict[str, bytes] = {}
    for entry in sizes:
        name, size = _entry(entry, running=announcement.running)
        if name in files:
            raise FormError("the record", f"holds {name} twice")
        content = stream.read(size)
        if len(content) != size:
            raise FormError("the record", f"ended in the middle of {name}")
        files[name] = content
    if stream.read(1):
        raise FormError("the record", "is longer than it says")
    if RECORD not in files:
        raise FormError("the record", f"has no {RECORD}")
    schema.check(files[RECORD], announcement.job_id, announcement.start)
    if SERIES in files:
        series_file.check_series(files[SERIES])
    return Parcel(announcement.job_id, announcement.start, files)


def _entry(entry: object, *, running: bool) -> tuple[str, int]:
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        raise FormError("the record", "names its files in another form")
    name, size = entry
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= limit_of(name, running=running):
        raise FormError("the record", f"holds more of {name} than is taken")
    return name, size
