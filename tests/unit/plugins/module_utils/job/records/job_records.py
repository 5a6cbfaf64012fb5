# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of jobs as root leaves them."""

from __future__ import annotations

import json
import pathlib
import typing as t

GUEST = {
    "rank": 0, "name": "vcn1-1", "node": "cn1", "address": "10.0.0.5", "image": "tiny@1", "vcpus": 1, "ram_mib": 192,
    "seconds": {"disk": 0.1, "ready": 2.0}, "used": {"cpu_s": 3.5},
}  # fmt: skip


def keep(place: pathlib.Path, key: str, content: t.Any) -> pathlib.Path:
    """A record as root leaves it."""
    directory = place / key
    directory.mkdir(parents=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (directory / "record.json").write_text(text)
    (directory / "record.json").chmod(0o400)
    return directory
