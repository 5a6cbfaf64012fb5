# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is installed here: the collection's version, and a digest of all of it."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re

from .effects import leaves_nothing
from .errors import VTorqueError

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGEST, MANIFEST, FILES = ".digest", "MANIFEST.json", "FILES.json"
"""The first is left by the role's place_collection.py, the others by ansible-galaxy."""
LENGTH = 8


@leaves_nothing
def version(root: pathlib.Path = ROOT) -> str:
    """The collection's version, as its installation recorded it.

    Args:
        root: of the collection.

    Raises:
        VTorqueError: that cannot be read: a disk was full, or files are missing.
    """
    try:
        if (manifest := root / MANIFEST).exists():
            return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
        found = re.search(r"^version:\s*(\S+)", (root / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, ValueError, KeyError, TypeError) as error:  # ValueError: no JSON, and no UTF-8
        why = f"cannot be read: {type(error).__name__}: {error}"
        raise VTorqueError(f"the version of {root}", why, "install it again: mikelangelo.vtorque.install") from error
    return found[1] if found else "unknown"


def identity(root: pathlib.Path = ROOT) -> str:
    """Version and digest: two hosts with the same word have the same collection.

    Args:
        root: of the collection.

    Returns:
        The version alone where nothing else was recorded, as in a checkout; "" where what was recorded cannot be read.
    """
    try:
        word = version(root)
        if (digest := root / DIGEST).exists():
            return f"{word}-{digest.read_text(encoding='ascii').strip()[:LENGTH]}"
        if (files := root / FILES).exists():
            return f"{word}-{hashlib.sha256(files.read_bytes()).hexdigest()[:LENGTH]}"
    except (VTorqueError, OSError, ValueError):  # ValueError: no ASCII
        return ""
    return word
