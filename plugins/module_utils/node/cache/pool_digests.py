# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of the pool whose digest this node has taken where they are: remembered by a file's name alone.

Each start asks, so that asking costs one look at a file.
"""

from __future__ import annotations

import contextlib
import pathlib

from ...system import files
from ..pool.images import Image, unreadable
from ..state.settings import NodeSettings


def is_checked(image: Image, settings: NodeSettings) -> bool:
    """Return whether just this content was found to be what its record says.

    Args:
        image: of the pool.
        settings: NodeSettings of this node.
    """
    return _mark(image, settings).exists()


def note(image: Image, settings: NodeSettings) -> None:
    """Note that an image was verified; what was noted of another content of this name is forgotten.

    Args:
        image: of the pool.
        settings: NodeSettings of this node.
    """
    mark = _mark(image, settings)
    files.make_directory(mark.parent)
    for old in mark.parent.glob(f"{image.name}:*"):
        with contextlib.suppress(FileNotFoundError):
            old.unlink()
    mark.touch(mode=0o600)


def _mark(image: Image, settings: NodeSettings) -> pathlib.Path:
    try:
        facts = image.path.lstat()
    except OSError as error:
        raise unreadable(image, image.path, error) from error
    content = f"{facts.st_ino}.{facts.st_size}.{facts.st_mtime_ns}.{facts.st_ctime_ns}"
    return settings.images_dir / "checked" / f"{image.name}:{content}"
