# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A base: the kernel of an OSv, the files that each image on it has, and packages that may be required.

The administrator gives it as a directory, out of an OSv that they have built:

loader-stripped.elf     the kernel
root/                   what every image has: OSv's own programs for its API and its cloud-init, the launcher
packages/               packages, as directories or archives

In the pool it is an image of its own distribution, whose disk has `root` and `packages` as directories of one file
system.  No job boots it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ...errors import ImageFault, UserFault
from ...guest_kinds import OSV_BASE
from ..pool.images import Image
from .directory import read_directory
from .elf import MACHINES, MAGIC
from .metadata import MAX_BYTES
from .packages import MAX_PACKAGES, Package, build_package, read_package
from .rofs_reader import read_disk
from .tree import Directory, Entry, File, Tree, create_file, read_pieces

KERNEL = "loader-stripped.elf"
ROOT, PACKAGES = "root", "packages"
CMDLINE = "--rootfs=rofs"
"""How every image's command line begins, unless the base says something else."""
_ANY = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True)
class Base:
    """A base of the pool.

    Attributes:
        image: of the pool.
        root: what every image has.
        packages: what may be required.
    """

    image: Image
    root: Tree
    packages: tuple[Package, ...]


def read_build(path: pathlib.Path, max_bytes: int) -> Tree:
    """Read the administrator's directory, and see that its packages are good.

    Args:
        path: of the directory.
        max_bytes: of all its files.

    Returns:
        What the base's disk is to hold.

    Raises:
        UserFault: there is no such directory, or it holds what no image can have.
    """
    if not path.is_dir():
        raise UserFault(f"{path}", "is no directory", f"it holds {KERNEL}, {ROOT}/ and {PACKAGES}/")
    tree = Tree(max_bytes)
    for name in (ROOT, PACKAGES):
        tree.add(name, Directory("the base"))
    if (path / ROOT).is_dir():
        _graft(tree, ROOT, path / ROOT, max_bytes)
    if (path / PACKAGES).is_dir():
        found: dict[str, str] = {}
        for place in sorted((path / PACKAGES).iterdir()):
            if place.suffix == ".yaml":  # beside its archive
                continue
            package = read_package(place, max_bytes)
            name = f"{package.description.name}@{package.description.version}"
            if name in found:
                raise UserFault(f"{place}", f"is {package}, as {found[name]} is")
            if len(found) >= MAX_PACKAGES:
                raise UserFault(f"{path / PACKAGES}", f"holds more than {MAX_PACKAGES} packages")
            found[name] = f"{place}"
            own = {place: create_file(content, name) for place, content in package.small_files.items()}
            for inner, entry in {**own, **package.tree.entries}.items():
                tree.add(f"{PACKAGES}/{name}/{inner}", entry)
    return tree


def _graft(tree: Tree, name: str, path: pathlib.Path, max_bytes: int) -> None:
    own = Tree(max_bytes)
    read_directory(path, "the base", own, whole=True)
    for place, entry in own.entries.items():
        tree.add(f"{name}/{place}", entry)


def kernel_arch(path: pathlib.Path) -> str:
    """Return the architecture of OSv's kernel.

    Args:
        path: of the kernel.

    Raises:
        UserFault: it cannot be read, or is no ELF of 64 bits.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(20)
    except OSError as error:
        raise UserFault(f"{path}", error.strerror or str(error), f"scripts/build of OSv makes {KERNEL}") from error
    arch = MACHINES.get(int.from_bytes(head[18:20], "little"), "")
    if head[:6] != MAGIC + b"\2\1" or not arch:
        raise UserFault(
            f"{path}",
            "is no kernel of OSv: no ELF of 64 bits for x86_64 or aarch64",
            f"{KERNEL}, or --kernel and --arch",
        )
    return arch


def load_base(image: Image) -> Base:
    """Read a base of the pool.

    Args:
        image: of the pool.

    Raises:
        UserFault: it is no base.
        ImageFault: its disk is broken.
    """
    if image.distro != OSV_BASE or image.boot.kernel is None:
        raise UserFault(f"image {image.name}", "is no base to compose on", "vmgr image add NAME --osv-base DIR")
    try:
        entries = read_disk(image.path, "the base")
    except OSError as error:
        raise ImageFault(f"image {image.name}", f"{image.path}: {error.strerror or error}") from error
    root = Tree(_ANY)
    packages: dict[str, dict[str, Entry]] = {}
    for path, entry in entries.items():
        part, _slash, place = path.partition("/")
        if part == ROOT and place:
            root.add(place, entry)
        elif part == PACKAGES and place:
            packages.setdefault(place.partition("/")[0], {})[place.partition("/")[2]] = entry
    return Base(image, root, tuple(_load_package(image, name, own) for name, own in sorted(packages.items())))


def _load_package(image: Image, name: str, entries: t.Mapping[str, Entry]) -> Package:
    tree = Tree(_ANY)
    small: dict[str, bytes | None] = {}
    for place, entry in entries.items():
        if place.startswith("meta/") and isinstance(entry, File) and entry.size <= MAX_BYTES:
            small[place] = b"".join(read_pieces(place, entry))
        elif place and place.partition("/")[0] != "meta":
            tree.add(place, dataclasses.replace(entry, package=name))
    return build_package(small, tree, f"{name} of {image.name}")
