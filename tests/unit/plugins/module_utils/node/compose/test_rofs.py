# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written as OSv's read-only file system is what an independent reader, and the product's own, find there."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import typing as t

import hypothesis.strategies as st
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import ImageFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.compose import rofs, rofs_reader
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.compose.tree import (
    Directory,
    File,
    Link,
    Tree,
    create_file,
    read_pieces,
)
from hypothesis import given

from tests.unit.fuzz.inputs import tried

from . import osv_reader

MIB = 1 << 20
Content = osv_reader.Content


def tree_of(contents: t.Mapping[str, Content]) -> Tree:
    tree = Tree(64 * MIB)
    for path, content in contents.items():
        if content is None:
            tree.add(path, Directory("it"))
        elif isinstance(content, bytes):
            tree.add(path, create_file(content, "it"))
        else:
            tree.add(path, Link(content, "it"))
    return tree


def disk_of(contents: t.Mapping[str, Content]) -> bytes:
    stream = io.BytesIO()
    size = rofs.write_disk(tree_of(contents), stream, lambda _count: None)
    assert size == len(stream.getvalue())
    return stream.getvalue()


def with_parents(contents: t.Mapping[str, Content]) -> dict[str, Content]:
    """By absolute paths, with the directories above."""
    found: dict[str, Content] = {}
    for path, content in contents.items():
        parts = path.split("/")
        for count in range(1, len(parts)):
            found.setdefault("/" + "/".join(parts[:count]), None)
        found["/" + path] = content
    return found


ODD_TREE: dict[str, Content] = {
    "empty": b"", "block": b"b" * 512, "more": b"m" * 513, "large": bytes(range(256)) * 4096, "hollow": None,
    "usr/lib/liba.so": b"a", "usr/lib/a": "liba.so", "usr/bin/a": "/usr/lib/a", "größe/naïve ü": b"\xff\0",
    os.fsdecode(b"not-utf8-\xff\xfe"): b"x", "n" * 255: b"n", "/".join("d" * 200 for _level in range(6)): b"deep",
}  # fmt: skip


def test_disk_of_odd_files_is_read_back_whole() -> None:
    assert osv_reader.read(disk_of(ODD_TREE)) == with_parents(ODD_TREE)


def test_disk_of_nothing_is_an_empty_root() -> None:
    assert osv_reader.read(disk_of({})) == {}


def test_disk_of_the_same_files_is_the_same_bytes_in_any_order() -> None:
    turned = dict(reversed([item for item in ODD_TREE.items()]))
    assert disk_of(turned) == disk_of(ODD_TREE)


def test_tables_that_fill_their_blocks_are_followed_by_a_block() -> None:
    """OSv reads the number of blocks that stands there; a table that ends with a block is whole, too."""
    for length in range(1, 40):
        contents: dict[str, Content] = {"x" * length: b"1", "l": "x" * length}
        assert osv_reader.read(disk_of(contents)) == with_parents(contents)


NAMES = st.one_of(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12),
    st.binary(min_size=1, max_size=12).map(lambda data: os.fsdecode(data.replace(b"/", b"_").replace(b"\0", b"_"))),
).filter(lambda name: name not in (".", "..") and len(os.fsencode(name)) <= 255)
CONTENTS = st.one_of(
    st.none(), st.binary(max_size=40), st.integers(0, 3000).map(lambda size: bytes(size)),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30),
)  # fmt: skip
TREES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4), CONTENTS), max_size=12)


@tried
@given(TREES)
def test_any_tree_is_read_back_by_both_readers(items: list[tuple[list[str], Content]]) -> None:
    contents: dict[str, Content] = {}
    for parts, content in items:
        path = "/".join(parts)
        whole = with_parents(contents)
        above = [whole.get("/" + "/".join(parts[:count]), ()) for count in range(1, len(parts))]
        if "/" + path not in whole and all(one in ((), None) for one in above):
            contents[path] = content
    disk = disk_of(contents)
    assert osv_reader.read(disk) == with_parents(contents)
    with Disk(disk) as place:
        assert by_the_product(place) == with_parents(contents)


class Disk:
    """A disk in memory that has a path."""

    def __init__(self, content: bytes) -> None:
        self.fd = os.memfd_create("disk")
        os.write(self.fd, content)

    def __enter__(self) -> pathlib.Path:
        return pathlib.Path(f"/proc/self/fd/{self.fd}")

    def __exit__(self, *_error: object) -> None:
        os.close(self.fd)


def by_the_product(place: pathlib.Path) -> dict[str, Content]:
    found: dict[str, Content] = {}
    for path, entry in rofs_reader.read_disk(place, "it").items():
        if isinstance(entry, File):
            found["/" + path] = b"".join(read_pieces(path, entry))
        else:
            found["/" + path] = entry.target if isinstance(entry, Link) else None
    return found


@tried
@given(st.lists(st.tuples(st.integers(512, 4000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4))
def test_broken_disk_is_refused_or_read_and_never_more(changes: list[tuple[int, bytes]]) -> None:
    """A base lies in the pool; its disk may be damaged all the same."""
    disk = bytearray(disk_of({"a/b": b"text", "l": "a/b", "c": b"x" * 600}))
    for at, content in changes:
        at = min(at, len(disk) - len(content))
        disk[at : at + len(content)] = content
    with Disk(bytes(disk)) as place:
        found: dict[str, Content] = {}
        with contextlib.suppress(ImageFault, UserFault):
            found = by_the_product(place)
    assert sum(len(content or "") for content in found.values()) <= 100 * len(disk)


@pytest.mark.parametrize("size", [0, 100, 512, 700, 1024])
def test_disk_that_is_cut_off_is_refused(size: int) -> None:
    with Disk(disk_of({"a": b"x"})[:size]) as place, pytest.raises(ImageFault):
        rofs_reader.read_disk(place, "it")
