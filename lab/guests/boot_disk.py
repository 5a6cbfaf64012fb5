# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk that a BIOS boots without help: GRUB, a partition, and on it kernel and initial file system."""

from __future__ import annotations

import pathlib
import struct

from . import kernel
from .kernel import run

PACKAGES = ("grub-pc-bin", "grub-common")
MODULES = ("biosdisk", "part_msdos", "ext2", "linux", "normal")
SECTOR = 512
FIRST, SECTORS = 2048, 40 * 2048
"""Of the partition; GRUB's own program lies between the first sector and it."""
LINUX, ACTIVE = 0x83, 0x80
TABLE, MARK = 446, b"\x55\xaa"


def make(disk: pathlib.Path, vmlinuz: pathlib.Path, initrd: pathlib.Path, cmdline: str, cache: pathlib.Path) -> None:
    """Make the disk, a raw one.

    Args:
        disk: where; beside it is room for what is made on the way.
        vmlinuz: the kernel.
        initrd: its initial file system.
        cmdline: its arguments.
        cache: where packages stay.

    Raises:
        LabError: something is missing on this machine, or cannot be fetched.
    """
    place = disk.parent / "grub"
    for name in PACKAGES:
        run("/usr/bin/dpkg-deb", "-x", str(kernel.fetch(kernel.named(name), cache)), str(place))
    files = place / "files"
    files.mkdir()
    (files / "vmlinuz").hardlink_to(vmlinuz)
    (files / "initrd").hardlink_to(initrd)
    report = f"set root=(hd0,msdos1)\nlinux /vmlinuz {cmdline}\ninitrd /initrd\nboot\n"
    (place / "early.cfg").write_text(report, encoding="ascii")
    modules = place / "usr/lib/grub/i386-pc"
    run(
        str(place / "usr/bin/grub-mkimage"), "-d", str(modules), "-O", "i386-pc", "-p", "/grub",
        "-c", str(place / "early.cfg"), "-o", str(place / "core.img"), *MODULES,
    )  # fmt: skip
    with disk.open("wb") as stream:
        stream.truncate((FIRST + SECTORS) * SECTOR)
    run(
        "/usr/sbin/mke2fs", "-q", "-F", "-t", "ext2", "-O", "^resize_inode", "-E", f"offset={FIRST * SECTOR}",
        "-d", str(files), str(disk), f"{SECTORS // 2}k",
    )  # fmt: skip
    with disk.open("r+b") as stream:
        # the first sector looks for GRUB's program in those that follow it, unless somebody tells it another place
        stream.write(_first_sector((modules / "boot.img").read_bytes()) + (place / "core.img").read_bytes())


def _first_sector(program: bytes) -> bytes:
    """With a table of one partition, from which a BIOS boots; its old form of places is not looked at any more."""
    partition = struct.pack("<B3sB3sII", ACTIVE, b"\xff\xff\xff", LINUX, b"\xff\xff\xff", FIRST, SECTORS)
    return program[:TABLE] + partition.ljust(SECTOR - len(MARK) - TABLE, b"\0") + MARK
