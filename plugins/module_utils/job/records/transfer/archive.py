# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records that a front end keeps for others: each is added once, whole, and never changed by who hands it over."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat

from ....errors import VTorqueError
from ....state import layout
from ....system import files
from .transfer_format import Parcel

COMING = ".coming."
"""What a directory is called before it is whole."""


class RecordRejected(VTorqueError):
    """This record will not be taken, however often it comes."""


def add(parcel: Parcel, owner_uid: int, state_dir: pathlib.Path = layout.STATE_DIR) -> bool:
    """Keep what came, for its owner to read.

    Args:
        parcel: as it was read.
        owner_uid: of the job's user on this host.
        state_dir: holds `records`.

    Returns:
        False: this very record is here already, and nothing was changed.

    Raises:
        RecordRejected: another record of this start is here; it stays as it is.
        VTorqueError: it was not written, and nothing of it is left.
    """
    place = state_dir / "records"
    key = layout.job_key(parcel.job_id, parcel.start)
    _check_place(place)
    there = place / key
    coming = place / f"{COMING}{key}.{os.getpid()}"
    try:
        if _is_same(there, parcel):
            return False
        files.make_record_directory(coming, owner_uid)
        for name, content in parcel.files.items():
            files.write(coming / name, text_of(content), reader_uid=owner_uid)
        _to_disk(coming, *parcel.files)
        _publish(coming, there, parcel, owner_uid)
    except OSError as error:
        raise VTorqueError(f"{there} was not written", str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(coming)
    return True


def text_of(content: bytes) -> str:
    """A file as it is kept: text, whatever came."""
    return content.decode("utf-8", "replace")


def _check_place(place: pathlib.Path) -> None:
    """Records lie in a directory of root's, and a link leads elsewhere."""
    with contextlib.suppress(FileNotFoundError):
        facts = place.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != 0 or facts.st_mode & 0o022:
            raise VTorqueError(f"{place}", "is not a directory that only root can write: nothing is kept there")


def _is_same(there: pathlib.Path, parcel: Parcel) -> bool:
    """Return whether this record is here.  False: none of this start is.

    A log grows with each try of handing it over, and a console may have been cut elsewhere: the record decides.
    """
    try:
        facts = there.lstat()
    except FileNotFoundError:
        return False
    what = f"start {parcel.start} of job {parcel.job_id}"
    if not stat.S_ISDIR(facts.st_mode):
        raise VTorqueError(what, f"{there} is not a directory")
    try:
        fd = os.open(there / layout.RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # this host is a node too: it has consoles of the job's other guests
        return False
    with os.fdopen(fd, "rb") as stream:
        if stream.read(len(parcel.files[layout.RECORD]) + 1) == parcel.files[layout.RECORD]:
            return True
    raise RecordRejected(what, "another record of it is kept here, and stays", f"compare {there} with the node's")


def _to_disk(directory: pathlib.Path, *names: str) -> None:
    """The node forgets that the record waits as soon as it hears that this host has it."""
    for path in (*(directory / name for name in names), directory):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _publish(coming: pathlib.Path, there: pathlib.Path, parcel: Parcel, owner_uid: int) -> None:
    """Let the record appear: nothing that is there is ever replaced.

    rename(2) takes no directory's place that holds something, and no link's or file's.
    """
    if not there.exists():
        coming.rename(there)
    else:
        files.make_record_directory(there, owner_uid)
        for name in (*(name for name in parcel.files if name != layout.RECORD), layout.RECORD):
            try:
                os.link(coming / name, there / name, follow_symlinks=False)
            except FileExistsError:
                if name == layout.RECORD:
                    raise
    _to_disk(there.parent)
