# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages, bases and programs for tests: real files."""

from __future__ import annotations

import io
import json
import pathlib
import struct
import tarfile
import typing as t

TITLE = {"title": "A package", "author": "somebody"}
Files = t.Mapping[str, "bytes | str"]


def package(place: pathlib.Path, name: str = "hello", files: Files | None = None, run: t.Any = None,
            **more: t.Any) -> pathlib.Path:  # fmt: skip
    """A package in a directory; a file that is a `str` is a link."""
    directory = place / name
    (directory / "meta").mkdir(parents=True)
    (directory / "meta/package.yaml").write_text(json.dumps({"name": name, **TITLE, **more}))
    if run is not None:
        (directory / "meta/run.yaml").write_text(json.dumps(run))
    put(directory, files or {})
    return directory


def put(directory: pathlib.Path, files: Files) -> None:
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            (directory / path).symlink_to(content)
        else:
            (directory / path).write_bytes(content)


def archive(path: pathlib.Path, members: t.Sequence[tarfile.TarInfo | tuple[str, bytes]], name: str = "hello",
            mode: str = "w:gz") -> pathlib.Path:  # fmt: skip
    """A package in an archive, with its description and these members."""
    described: list[tarfile.TarInfo | tuple[str, bytes]] = [
        ("meta/package.yaml", json.dumps({"name": name, **TITLE}).encode())
    ]
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for member in [*described, *members]:
            if isinstance(member, tuple):
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
            else:
                tar.addfile(member)
    return path


def base(place: pathlib.Path, files: Files | None = None) -> pathlib.Path:
    """What an administrator gives to `vmgr image add --osv-base`."""
    directory = place / "osv"
    (directory / "root").mkdir(parents=True)
    (directory / "packages").mkdir()
    (directory / "loader-stripped.elf").write_bytes(program())
    for_jobs = {
        "libhttpserver-api.so": "/usr/lib/libhttpserver-api.so", "usr/lib/libhttpserver-api.so": program(),
        "usr/mgmt/cloud-init.so": program(), "usr/bin/iso-read.so": program(), "init/00-cmdline": b"/usr/mgmt/x.so;\n",
        "usr/lib/vtorque-launcher.so": program(), "etc/fstab": b"of OSv's own build\n", "etc/mnttab": "/proc/mounts",
    }  # fmt: skip
    put(directory / "root", {**for_jobs, **(files or {})})
    return directory


def program(needed: t.Sequence[str] = (), *, runpath: str = "", machine: int = 62, kind: int = 3,
            interpreter: bool = False) -> bytes:  # fmt: skip
    """The least of an ELF that names libraries."""
    names = b"\0"
    dynamic = b""
    for tag, text in [*((1, name) for name in needed), *(((29, runpath),) if runpath else ())]:
        dynamic += struct.pack("<qQ", tag, len(names))
        names += text.encode() + b"\0"
    kinds = [1, 2, *((3,) if interpreter else ())]
    begin = 64 + 56 * len(kinds)
    address = 0x400000
    strtab = begin + len(dynamic) + 32
    dynamic += struct.pack("<qQqQ", 5, address + strtab, 0, 0)
    size = strtab + len(names)
    head = struct.pack(
        "<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, kind, machine, 1, 0, 64, 0, 0, 64, 56, len(kinds), 0, 0, 0
    )
    rows = {1: (0, address, size), 2: (begin, address + begin, len(dynamic)), 3: (strtab, address + strtab, 1)}
    table = b"".join(
        struct.pack("<IIQQQQQQ", one, 4, rows[one][0], rows[one][1], 0, rows[one][2], rows[one][2], 8) for one in kinds
    )
    return head + table + dynamic + names
