# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine boots: the distribution's kernel, and a first file system of a few modules and busybox."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import tempfile

from ..guests import kernel
from ..guests.kernel import run
from ..system.state import LabError

HERE = pathlib.Path(__file__).parent
BUSYBOX = pathlib.Path("/bin/busybox")
KERNEL = "linux-image"
"""The distribution's general kernel: that for clouds has neither 9p nor cards of hardware."""
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
"""What the root needs before it is there; all others are loaded from it."""
DIRECTORIES = ("bin", "below", "dev", "modules", "over", "proc", "sys")


def make(place: pathlib.Path, cache: pathlib.Path) -> pathlib.Path:
    """Return the directory of a kernel, its modules and its first file system, made unless it is there.

    Args:
        place: where such directories stay, one for each set of inputs.
        cache: where the kernel's package stays.

    Raises:
        LabError: something is missing on this machine, or cannot be fetched.
    """
    if not BUSYBOX.exists():
        raise LabError(f"{BUSYBOX} is not installed (lab/prepare.sh)")
    package = kernel.newest(KERNEL)
    target = place / _digest(package)
    if target.is_dir():
        return target
    file = kernel.fetch(package, cache)
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place, prefix=".new-") as new:
        made = pathlib.Path(new) / "machine"
        made.mkdir(mode=0o755)
        _build(file, made)
        for old in place.iterdir():
            if not old.name.startswith(".new-"):
                shutil.rmtree(old)
        made.rename(target)
    return target


def _digest(package: kernel.Package) -> str:
    total = hashlib.sha256(package.sha256.encode())
    for file in (BUSYBOX, HERE / "initrd.sh", HERE / "image.py"):
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


def _build(package: pathlib.Path, place: pathlib.Path) -> None:
    kernel.unpack(package, place / "package").rename(place / "kernel")
    needed = kernel.modules(place / "package", MODULES)  # which has depmod write its lists, too
    (place / "package/lib/modules").rename(place / "modules")
    shutil.rmtree(place / "package")
    root = place / "root"
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True)
    for name, content in needed.items():
        (root / "modules" / name).write_bytes(content)
    (root / "modules/order").write_text("".join(f"{name}\n" for name in needed), encoding="ascii")
    shutil.copy(BUSYBOX, root / "bin/busybox")
    shutil.copy(HERE / "initrd.sh", root / "init")
    (root / "init").chmod(0o755)
    names = b"\0".join(str(path.relative_to(root)).encode() for path in sorted(root.rglob("*")))
    # not compressed: unpacking costs an emulated processor more than reading the file
    archive = run("/usr/bin/cpio", "-o", "-0", "-H", "newc", "-R", "0:0", "--quiet", cwd=root, stdin=names)
    (place / "initrd").write_bytes(archive)
    shutil.rmtree(root)
