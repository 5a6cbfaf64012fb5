# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pool with images that have records, and a node that may keep copies of them: real files."""

from __future__ import annotations

import hashlib
import json
import pathlib
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings

MIB = 1 << 20


def add(pool: pathlib.Path, name: str = "tiny@1", content: bytes = b"disk" * MIB, **boot: str) -> pathlib.Path:
    """A revision; its disk is raw, so that its content is what a test likes."""
    directory = pool / name
    directory.mkdir(parents=True)
    (directory / "disk.img").write_bytes(content)
    (directory / "vmlinuz").write_bytes(b"kernel of " + name.encode())
    stem, _at, revision = name.partition("@")
    record = {
        "version": 1, "name": stem, "revision": int(revision), "distro": "debian", "arch": "x86_64", "format": "raw",
        "disk": "disk.img", "disk_sha256": hashlib.sha256(content).hexdigest(), "disk_bytes": len(content),
        "virtual_bytes": len(content), "description": "", "created": "2026-01-01T00:00:00+00:00",
        "boot": {"mode": "kernel", "kernel": "vmlinuz", "cmdline": "", **boot},
    }  # fmt: skip
    (directory / "record.json").write_text(json.dumps(record))
    for path in (directory, *directory.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o444)
    return directory


def spoil(file: pathlib.Path, content: bytes = b"evil") -> None:
    """Other content of the same length, as a broken disk or a careless hand leaves it."""
    mode = file.stat().st_mode
    file.chmod(0o600)
    with file.open("r+b") as stream:
        stream.write(content)
    file.chmod(mode)


def settings_for(place: pathlib.Path, **more: t.Any) -> NodeSettings:
    """A node whose directories are here."""
    (place / "pool").mkdir(mode=0o755, exist_ok=True)
    stored = {"pool": place / "pool", "state_dir": place / "state", "run_dir": place / "run", "cache_bytes": 1 << 30}
    return NodeSettings(node_name="cn1", node_number=1, **{**stored, **more})


def find(settings: NodeSettings, name: str = "tiny@1") -> images.Image:
    """In the pool."""
    return images.find(name, settings.pool)
