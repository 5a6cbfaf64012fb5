# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recipe as it travels to where the image is built: an archive of its files, and its commands."""

from __future__ import annotations

import io
import pathlib
import tarfile

from ...errors import UserFault
from .recipe import Recipe

FILES, COMMANDS = "recipe.tar", "recipe.commands"


def pack(recipe: Recipe, directory: pathlib.Path) -> None:
    """Write the two files that `apply_recipe.sh` of the role `guest_image` takes.

    Args:
        recipe: that was checked.
        directory: where to.

    Raises:
        UserFault: a source cannot be read any more.
    """
    with tarfile.open(directory / FILES, "w", format=tarfile.GNU_FORMAT) as archive:
        for file in recipe.files:
            member = _member(file.path, file.mode)
            try:
                if file.source is None:
                    member.size = len(file.content or b"")
                    archive.addfile(member, io.BytesIO(file.content or b""))
                    continue
                with file.source.open("rb") as stream:
                    member.size = file.source.stat().st_size
                    archive.addfile(member, stream)
            except OSError as error:
                raise UserFault(f"{file.path}: source {file.source}", error.strerror or str(error)) from error
    # a command may have several lines, and holds no zero byte
    (directory / COMMANDS).write_bytes(b"".join(command.encode() + b"\0" for command in recipe.commands))


def _member(path: str, mode: int) -> tarfile.TarInfo:
    """Root's, of no time: directories on the way to it are made when it is unpacked."""
    member = tarfile.TarInfo(path.lstrip("/"))
    member.mode = mode
    return member
