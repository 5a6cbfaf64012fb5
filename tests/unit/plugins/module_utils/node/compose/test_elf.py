# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs need is known before an image is written: libraries, machine, and a place to be loaded at."""

from __future__ import annotations

import io
import pathlib
import subprocess

import hypothesis.strategies as st
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.compose.elf import check_programs, read_program
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.compose.tree import Link, Tree, create_file
from hypothesis import given

from tests.unit.fuzz.inputs import tried

from .made_packages import program

QEMU_IMG = pathlib.Path("/usr/bin/qemu-img")


def image(**files: bytes) -> Tree:
    tree = Tree(1 << 30)
    for name, content in files.items():
        tree.add(name.replace("__", "/").replace("_so", ".so"), create_file(content, "it"))
    return tree


def test_real_program_names_the_libraries_that_its_linker_gave_it() -> None:
    """As the tools of this machine read it."""
    content = QEMU_IMG.read_bytes()
    found = read_program(io.BytesIO(content), len(content), "qemu-img")
    assert found is not None
    output = subprocess.run(
        ["/usr/bin/readelf", "-d", QEMU_IMG], capture_output=True, text=True, check=True, timeout=60
    )
    named = [line.split("[")[1].rstrip("]") for line in output.stdout.splitlines() if "(NEEDED)" in line]
    assert "libc.so.6" in named
    assert list(found.needed) == named
    assert (found.dynamic, found.relocatable) == (True, True)


def test_libraries_of_the_image_and_of_the_kernel_are_found() -> None:
    tree = image(
        usr__bin__a=program(["libx.so", "liby.so", "libc.so.6", "libz.so"], runpath="$ORIGIN/../own:/opt/z"),
        usr__lib__libx_so=program(), usr__own__liby_so=program(), opt__z__libz_so=program(),
    )  # fmt: skip
    check_programs(tree, "x86_64", ["it"])
    tree.add("usr/bin/b", create_file(program(["libl.so"]), "it"))
    tree.add("usr/lib/libl.so", Link("../own/liby.so", "it"))
    check_programs(tree, "x86_64", ["it"])


def test_all_missing_libraries_are_named_at_once() -> None:
    tree = image(a=program(["libx.so", "libm.so.6"]), usr__lib__b_so=program(["liby.so"]))
    with pytest.raises(UserFault, match=r"/a of it needs libx\.so; /usr/lib/b\.so of it needs liby\.so"):
        check_programs(tree, "x86_64", ["it"])
    check_programs(tree, "x86_64", ["another"])


@pytest.mark.parametrize(("content", "why"), [
    (program(machine=183), "is for aarch64, the base is for x86_64"), (program(machine=2), "is for another machine"),
    (program(kind=2, interpreter=True), "cannot be loaded at any address"),
    (b"\x7fELF\1\1\1" + bytes(60), "no program of 64"),
    (program(["x"])[:150], "is a broken ELF"),
])  # fmt: skip
def test_program_that_the_kernel_would_not_load_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(UserFault, match=why):
        check_programs(image(a=content), "x86_64", ["it"])


def test_static_program_and_what_is_no_program_are_good() -> None:
    check_programs(image(a=program(kind=2), b=b"#!/bin/sh\n" * 20, c=b"\x7fEL"), "x86_64", ["it"])


@tried
@given(st.lists(st.tuples(st.integers(4, 400), st.binary(min_size=1, max_size=8)), max_size=5), st.integers(0, 500))
def test_broken_program_is_refused_or_read(changes: list[tuple[int, bytes]], size: int) -> None:
    content = bytearray(program(["liba.so", "libb.so"], runpath="/x"))
    for at, piece in changes:
        content[at : at + len(piece)] = piece
    content = content[: max(64, size)]
    reason = ""
    try:
        read_program(io.BytesIO(bytes(content)), len(content), "it")
    except UserFault as error:
        reason = str(error)
    assert not reason or reason.startswith("it: ")
