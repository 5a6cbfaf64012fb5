# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For all unit tests."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import typing as t

import hypothesis
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images

# how long an example takes depends on what else the machine does; who asks for more asks for others
hypothesis.settings.register_profile(
    "vtorque", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="VTORQUE_FUZZ" not in os.environ,
)  # fmt: skip
hypothesis.settings.load_profile("vtorque")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> t.Generator[None, t.Any, t.Any]:
    """Look for no garbage while tests are collected: what that makes stays, and the look is a third of the work."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class ImagePool:
    """A pool of images whose owner is who runs the tests."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.mkdir(mode=0o755)

    def qemu_img(self, *arguments: object) -> None:
        subprocess.run(["qemu-img", *map(str, arguments)], check=True, capture_output=True, timeout=60)

    def add(self, entry: str, number: int, **changes: t.Any) -> pathlib.Path:
        """A revision with a kernel beside it, and what its record says besides."""
        directory = self.path / f"{entry}@{number}"
        directory.mkdir(mode=0o755)
        disk = directory / "disk.qcow2"
        self.qemu_img("create", "-q", "-f", "qcow2", disk, "16M")
        (directory / "vmlinuz").write_bytes(b"kernel")
        (directory / "initrd").write_bytes(b"initrd")
        record = {
            "version": 1, "name": entry, "revision": number, "distro": "debian", "arch": "x86_64", "format": "qcow2",
            "disk": "disk.qcow2", "disk_sha256": hashlib.sha256(disk.read_bytes()).hexdigest(),
            "disk_bytes": disk.stat().st_size, "virtual_bytes": 16 << 20,
            "boot": {"mode": "kernel", "kernel": "vmlinuz", "initrd": "initrd", "cmdline": "console=ttyS0"},
            "description": "for tests", "created": "2026-01-01T00:00:00+00:00", **changes,
        }  # fmt: skip
        (directory / "record.json").write_text(json.dumps(record))
        return directory

    def find(self, name: str) -> images.Image:
        return images.find(name, self.path, owner_uid=os.getuid())


class _Opens:
    """Paths that this process opens to read, by Python's own audit events, while a test wants to know."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.wanted = False
        self.installed = False

    def install(self) -> None:
        """No audit hook can be taken away again: there is one for all tests."""
        if not self.installed:
            self.installed = True
            sys.addaudithook(self.hear)

    def hear(self, event: str, args: tuple[t.Any, ...]) -> None:
        if not self.wanted or event != "open":
            return
        path, _mode, flags = args
        if isinstance(path, (str, os.PathLike)) and flags & os.O_ACCMODE == os.O_RDONLY:
            self.paths.append(os.fspath(path))


OPENS = _Opens()


@pytest.fixture
def opened() -> t.Iterator[t.Callable[[pathlib.Path], int]]:
    """How often this process has opened a file to read it since the test began."""
    OPENS.install()
    OPENS.paths.clear()
    OPENS.wanted = True
    yield lambda path: OPENS.paths.count(str(path))
    OPENS.wanted = False


@pytest.fixture
def image_pool(tmp_path: pathlib.Path) -> ImagePool:
    """With three revisions of one image, and two images without a record."""
    pool = ImagePool(tmp_path / "pool")
    for revision in (2, 10, 9):
        pool.add("tiny", revision)
    pool.qemu_img("create", "-q", "-f", "qcow2", pool.path / "plain.qcow2", "8M")
    (pool.path / "old.img").write_bytes(b"\0" * 4096)
    (pool.path / "notes.txt").write_text("no image")
    for path in pool.path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)
    return pool


@pytest.fixture
def placed(tmp_path: pathlib.Path) -> list[str]:
    """A directory with a file in it, a file, a link to a directory of the site's, a link to nothing, and nothing."""
    (tmp_path / "directory/inner").mkdir(parents=True)
    (tmp_path / "directory/inner/file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "site").mkdir()
    (tmp_path / "site/precious").touch()
    (tmp_path / "link").symlink_to(tmp_path / "site")
    (tmp_path / "dangling").symlink_to("nowhere")
    return [str(tmp_path / name) for name in ("directory", "file", "link", "dangling", "missing")]
