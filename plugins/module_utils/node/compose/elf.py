# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the loader of OSv will want of a program: its machine, its kind, and the libraries that it names.

(System V ABI, chapters 4 and 5; OSv: core/elf.cc, where its own loader searches `/` and `/usr/lib`, and the list of
libraries that are part of its kernel.)
"""

from __future__ import annotations

import posixpath
import struct
import typing as t

from ...errors import UserFault
from ...text import printable
from .tree import File, Tree, describe_path

MACHINES = {62: "x86_64", 183: "aarch64"}
SEARCHED = ("", "usr/lib")
PART_OF_THE_KERNEL = frozenset({
    "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libresolv.so.2", "libc.so.6", "libm.so.6", "libpthread.so.0",
    "libdl.so.2", "librt.so.1", "libstdc++.so.6", "libaio.so.1", "libxenstore.so.3.0", "libcrypt.so.1", "libutil.so",
    "libc.musl-x86_64.so.1", "ld-musl-x86_64.so.1",
})  # fmt: skip
MAGIC = b"\x7fELF"
MAX_TABLE = 1 << 20
"""Bytes of a table that are read: of segments, of the dynamic section."""
MAX_NAME = 4096
MAX_PROGRAM = 512 << 20
"""Bytes of a program; it is read whole, for its names may stand at its end."""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_EXEC, _SHARED = 2, 3
_LOAD, _DYNAMIC_SEGMENT, _INTERPRETER = 1, 2, 3
_NEEDED, _STRTAB, _RPATH, _RUNPATH = 1, 5, 15, 29


class Program(t.NamedTuple):
    """What a program or library says of itself.

    Attributes:
        machine: its architecture, "" for one that OSv does not run on.
        relocatable: whether it can be loaded anywhere.
        dynamic: whether it needs a loader.
        needed: the libraries that it names.
        paths: where it has them searched.
    """

    machine: str
    relocatable: bool
    dynamic: bool
    needed: tuple[str, ...]
    paths: tuple[str, ...]


def read_program(stream: t.BinaryIO, size: int, what: str) -> Program | None:
    """Read what a program says of itself.

    Args:
        stream: of the file; it may be read forwards from its first byte alone.
        size: of the file.
        what: the file, for messages.

    Returns:
        None: it is no ELF.

    Raises:
        UserFault: it is a broken one, of 32 bits, or too large.
    """
    head = _read(stream, _HEADER.size)
    if not head.startswith(MAGIC):
        return None
    if len(head) < _HEADER.size or head[4:6] != b"\2\1":
        raise UserFault(what, "is no program of 64 bits with the low byte first", "compile it for OSv's machine")
    _ident, kind, machine, *rest = _HEADER.unpack(head)
    if size > MAX_PROGRAM:
        raise UserFault(what, f"is a program of more than {MAX_PROGRAM >> 20} MiB", "strip it")
    content = head + _read(stream, size - len(head))
    offset, segment_size, segments = rest[2], rest[6], rest[7]
    if segment_size != _SEGMENT.size and segments:
        raise UserFault(what, "is a broken ELF: the size of its table of segments")
    table = _part(content, offset, segments * _SEGMENT.size, what)
    rows = [_SEGMENT.unpack_from(table, number * _SEGMENT.size) for number in range(segments)]
    needed, paths = _read_dynamic(content, rows, what)
    dynamic = any(row[0] == _INTERPRETER for row in rows)
    return Program(MACHINES.get(machine, ""), kind == _SHARED, dynamic, needed, paths)


def _read(stream: t.BinaryIO, count: int) -> bytes:
    pieces = []
    while count > 0 and (piece := stream.read(count)):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _read_dynamic(content: bytes, rows: list[tuple[int, ...]], what: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = next((row for row in rows if row[0] == _DYNAMIC_SEGMENT), None)
    if found is None:
        return (), ()
    table = _part(content, found[2], found[5] - found[5] % _DYNAMIC.size, what)
    values: list[tuple[int, int]] = []
    for tag, value in _DYNAMIC.iter_unpack(table):
        if tag == 0:
            break
        values.append((tag, value))
    address = next((value for tag, value in values if tag == _STRTAB), None)
    names = [value for tag, value in values if tag == _NEEDED]
    ways = [value for tag, value in values if tag in (_RPATH, _RUNPATH)]
    if not names and not ways:
        return (), ()
    loaded = (row for row in rows if row[0] == _LOAD and address is not None and row[3] <= address < row[3] + row[5])
    row = next(loaded, None)
    if row is None or address is None:
        raise UserFault(what, "is a broken ELF: its names lie in no segment")
    begin = row[2] + address - row[3]
    texts = [_name(content, begin + at, what) for at in names]
    searched = [part for at in ways for part in _name(content, begin + at, what).split(":") if part]
    return tuple(texts), tuple(searched)


def _part(content: bytes, offset: int, count: int, what: str) -> bytes:
    if count > MAX_TABLE or offset + count > len(content):
        raise UserFault(what, "is a broken ELF: a table lies outside of it")
    return content[offset : offset + count]


def _name(content: bytes, at: int, what: str) -> str:
    end = content.find(b"\0", at, at + MAX_NAME)
    if end < 0:
        raise UserFault(what, "is a broken ELF: a name without an end")
    return content[at:end].decode("utf-8", "surrogateescape")


def check_programs(tree: Tree, arch: str, packages: t.Collection[str]) -> None:
    """See that the loader will find what the programs of packages need.

    Args:
        tree: the whole image.
        arch: of its kernel.
        packages: whose programs are checked.

    Raises:
        UserFault: a program is of another machine, cannot be loaded, or needs a library that is not in the image; all
            that are missing are named.
    """
    missing: list[str] = []
    for path, entry in tree.entries.items():
        if isinstance(entry, File) and entry.package in packages and entry.size >= _HEADER.size:
            what = describe_path(path, entry.package)
            with entry.open() as stream:
                program = read_program(stream, entry.size, what)
            if program is not None:
                _check_kind(program, arch, what)
                lacks = [name for name in program.needed if not _is_found(tree, path, name, program.paths)]
                missing += [f"{what} needs {printable(name)}" for name in lacks]
    if missing:
        raise UserFault(
            "libraries are missing in the image",
            "; ".join(missing[:20]) + ("; ..." if len(missing) > 20 else ""),
            "put them into /usr/lib of the package, or require a package that has them",
        )


def _check_kind(program: Program, arch: str, what: str) -> None:
    if program.machine != arch:
        raise UserFault(what, f"is for {program.machine or 'another machine'}, the base is for {arch}")
    if program.dynamic and not program.relocatable:
        raise UserFault(what, "cannot be loaded at any address", "compile it with -fPIE, link it with -pie -rdynamic")


def _is_found(tree: Tree, path: str, name: str, paths: tuple[str, ...]) -> bool:
    if name in PART_OF_THE_KERNEL:
        return True
    here = "/" + posixpath.dirname(path)
    own = [way.replace("${ORIGIN}", here).replace("$ORIGIN", here).strip("/") for way in paths]
    places = [name.lstrip("/")] if "/" in name else [f"{way}/{name}".strip("/") for way in (*own, *SEARCHED)]
    try:
        return any(found is not None and isinstance(found[1], File) for found in map(tree.find, places))
    except RecursionError:
        return False
