# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of capstan: what is read of them, which of them an image needs, and what none can have."""

from __future__ import annotations

import gzip
import os
import pathlib
import socket
import tarfile
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.compose.metadata import parse_run
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.compose.packages import (
    Package,
    read_package,
    resolve,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.compose.tree import File, Link, read_pieces

from .made_packages import archive, package

MIB = 1 << 20


def contents(found: Package) -> dict[str, t.Any]:
    return {
        path: b"".join(read_pieces(path, entry)) if isinstance(entry, File) else entry.target
        for path, entry in found.tree.entries.items()
        if isinstance(entry, (File, Link))
    }


def test_directory_and_archive_of_the_same_files_are_the_same_package(tmp_path: pathlib.Path) -> None:
    files = {"usr/bin/a": b"program", "usr/lib/b": "../bin/a", "etc/c": b""}
    directory = package(tmp_path, files=files, version="1.2")
    with tarfile.open(tmp_path / "it.mpm", "w:gz") as tar:
        tar.add(directory, arcname="/")
    found = [read_package(path, MIB) for path in (directory, tmp_path / "it.mpm")]
    assert [contents(one) for one in found] == [files, files]
    assert [str(one) for one in found] == ["hello 1.2", "hello 1.2"]


def test_archive_that_is_not_packed_and_a_description_beside_it_are_read(tmp_path: pathlib.Path) -> None:
    with tarfile.open(tmp_path / "lib.mpm", "w") as tar:
        (tmp_path / "f").write_bytes(b"x")
        tar.add(tmp_path / "f", arcname="usr/lib/f")
    with pytest.raises(UserFault, match=r"has no meta/package\.yaml"):
        read_package(tmp_path / "lib.mpm", MIB)
    (tmp_path / "lib.yaml").write_text("name: lib\ntitle: L\nauthor: A\n")
    found = read_package(tmp_path / "lib.mpm", MIB)
    assert (str(found), contents(found)) == ("lib", {"usr/lib/f": b"x"})


@pytest.mark.parametrize(("line", "out"), [
    ("/src", {"src/a", "src/deep/b", "src/deep/src/c"}), ("/src/*", {"src/a", "src/deep/b", "src/deep/src/c"}),
    ("/**/c", {"src/deep/src/c"}), ("/src/*.o", set()), ("/s*", {"src/a", "src/deep/b", "src/deep/src/c"}),
    ("# /src", set()), ("/src/deep", {"src/deep/b", "src/deep/src/c"}), ("src", set()),
])  # fmt: skip
def test_capstanignore_leaves_out_what_capstan_leaves_out(tmp_path: pathlib.Path, line: str, out: set[str]) -> None:
    files = {"src/a": b"", "src/deep/b": b"", "src/deep/src/c": b"", "keep": b"", ".git/x": b"", "mpm-pkg/x": b""}
    directory = package(tmp_path, files=files)
    (directory / ".capstanignore").write_text(f"{line}\n")
    there = {path for path in files if not path.startswith((".git", "mpm-pkg"))}
    assert set(contents(read_package(directory, MIB))) == there - out


@pytest.mark.parametrize(("text", "why"), [
    ("name: a\ntitle: b\n", "does not say author"), ("{}", "does not say name and title and author"),
    ("- a\n", "is not a mapping"), ("name: [a]\ntitle: b\nauthor: c", "name is not a text"),
    ("name: a b\ntitle: b\nauthor: c", "letters, digits"), ("name: &x a\ntitle: *x\nauthor: c", "references"),
    ("name: !!python/name:os.system a\ntitle: b\nauthor: c", "tags"), ("name: 'a\n", "is no YAML"),
    ("name: a\ntitle: b\nauthor: c\nrequire: libz", "not a list"),
    ("name: a\ntitle: b\nauthor: c\nrequire: ['lib z']", "is no package"), ("a: " + "[" * 40 + "]" * 40, "nesting"),
    ("name: a\ntitle: \"b\\e[2J\"\nauthor: c", "does not print"), ("x: " + "y" * 70_000, "more than 65536 bytes"),
    ("name: a\ntitle: b\nauthor: c\nversion: '../1'", "version '../1' is none"),
])  # fmt: skip
def test_description_that_is_none_is_refused_with_its_fault(tmp_path: pathlib.Path, text: str, why: str) -> None:
    directory = package(tmp_path)
    (directory / "meta/package.yaml").write_text(text)
    with pytest.raises(UserFault, match=why):
        read_package(directory, MIB)


def test_run_sets_are_read_with_their_variables() -> None:
    text = b"""\
runtime: native
config_set:
  short:
    bootcmd: --env=A=1 --env=B=x=y /usr/bin/solve.so --steps 1
  long:
    bootcmd: /usr/bin/solve.so --steps 1000
    env:
      MODE: slow
config_set_default: long
"""
    configs, default = parse_run(text, "it")
    assert default == "long"
    assert [(one.name, one.command, dict(one.variables)) for one in configs] == [
        ("short", "/usr/bin/solve.so --steps 1", {"A": "1", "B": "x=y"}),
        ("long", "/usr/bin/solve.so --steps 1000", {"MODE": "slow"}),
    ]
    assert parse_run(b"runtime: native\nmain: /a.so -v\n", "it")[0][0].command == "/a.so -v"


@pytest.mark.parametrize(("text", "why"), [
    (b"runtime: java\nmain: x.Main\n", "runtime 'java' is not composed"), (b"main: /a\n", "runtime ''"),
    (b"runtime: native\nconfig_set: {a: {bootcmd: 'sh -c x'}}", "does not begin with the path"),
    (b"runtime: native\nconfig_set: {a: {base: 'x:y'}}", "base is not read"),
    (b"runtime: native\nconfig_set: {a: {main: /a}}\nconfig_set_default: b", "is no set"),
    (b"runtime: native\nconfig_set: {a: {env: {'1x': b}}}", "not the name of a variable"),
])  # fmt: skip
def test_run_file_that_is_not_read_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(UserFault, match=why):
        parse_run(text, "it")


# ---- what no image can have


def member(name: str, kind: bytes = tarfile.REGTYPE, **facts: t.Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in facts.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(("one", "why"), [
    (("../x", b"1"), "leads out of the package"), (("usr/../../x", b"1"), "leads out of the package"),
    (("/../x", b"1"), "leads out of the package"), (member("d", tarfile.CHRTYPE), "a device or a FIFO"),
    (member("d", tarfile.BLKTYPE), "a device or a FIFO"), (member("d", tarfile.FIFOTYPE), "a device or a FIFO"),
    (member("h", tarfile.LNKTYPE, linkname="/etc/shadow"), "is another name of '/etc/shadow'"),
    (member("s", mode=0o4755), "setuid or setgid"), (member("g", mode=0o2755), "setuid or setgid"),
    (member("n" * 300), "names of 255 bytes"), (("/".join("d" * 101), b""), "more than 100 directories"),
    (member("l", tarfile.SYMTYPE, linkname="t" * 70_000), "has a header of more|target is empty, or over 4095"),
    (member("l", tarfile.SYMTYPE, linkname="t" * 5000), "target is empty, or over 4095 bytes"),
    (member("l", tarfile.SYMTYPE, linkname=""), "target is empty"),
    (("meta/run.yaml", b" " * 70_000), "more than 65536 bytes"),
])  # fmt: skip
def test_hostile_member_is_refused_by_name(tmp_path: pathlib.Path, one: t.Any, why: str) -> None:
    with pytest.raises(UserFault, match=why):
        read_package(archive(tmp_path / "it.mpm", [one]), MIB)


def test_member_twice_and_a_file_below_a_link_are_refused(tmp_path: pathlib.Path) -> None:
    """Unpackers write through such a link."""
    with pytest.raises(UserFault, match=r"is twice in it\.mpm"):
        read_package(archive(tmp_path / "it.mpm", [("a", b"1"), ("./a", b"1")]), MIB)
    link = member("etc", tarfile.SYMTYPE, linkname="/etc")
    with pytest.raises(UserFault, match="lies in /etc, which is a link"):
        read_package(archive(tmp_path / "it.mpm", [link, ("etc/shadow", b"1")]), MIB)
    with pytest.raises(UserFault, match="lies in /a, which is a file"):
        read_package(archive(tmp_path / "it.mpm", [("a", b"1"), ("a/b", b"1")]), MIB)


def test_second_name_of_a_file_in_an_archive_is_the_same_file(tmp_path: pathlib.Path) -> None:
    second = member("usr/b", tarfile.LNKTYPE, linkname="usr/a")
    found = read_package(archive(tmp_path / "it.mpm", [("usr/a", b"text"), second]), MIB)
    assert contents(found) == {"usr/a": b"text", "usr/b": b"text"}


def test_archive_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path: pathlib.Path) -> None:
    with gzip.open(tmp_path / "bomb.mpm", "wb", compresslevel=1) as stream:
        for _mib in range(64):
            stream.write(bytes(MIB))
    with pytest.raises(UserFault, match="unpacks to more than 8 MiB"):
        read_package(tmp_path / "bomb.mpm", 8 * MIB)


def test_header_that_wants_memory_is_refused(tmp_path: pathlib.Path) -> None:
    """A pax header is read whole by whoever reads the archive."""
    long = member("x")
    long.pax_headers = {"comment": "c" * (4 * MIB)}
    path = tmp_path / "it.mpm"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(long)
    with pytest.raises(UserFault, match="has a header of more than 65536 bytes"):
        read_package(path, 64 * MIB)


def test_many_members_and_many_bytes_are_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.compose.packages.MAX_ENTRIES", 10
    )
    with pytest.raises(UserFault, match="more than 10 members"):
        read_package(archive(tmp_path / "it.mpm", [(f"f{n}", b"") for n in range(20)]), MIB)
    with pytest.raises(UserFault, match="more than 1 MiB together"):
        read_package(package(tmp_path, files={"a": bytes(MIB), "b": b"1"}), MIB)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\3garbage", b"no tar" * 400])
def test_garbage_is_no_package(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / "it.mpm").write_bytes(content)
    with pytest.raises(UserFault, match=r"is no tar|cannot be unpacked|has no meta/package\.yaml"):
        read_package(tmp_path / "it.mpm", MIB)


def test_file_of_no_kind_and_directory_that_is_not_there_are_no_package(tmp_path: pathlib.Path) -> None:
    (tmp_path / "it.zip").write_bytes(b"PK")
    for path in (tmp_path / "it.zip", tmp_path / "none"):
        with pytest.raises(UserFault, match="is no package"):
            read_package(path, MIB)


def test_directory_that_is_too_deep_is_refused(tmp_path: pathlib.Path) -> None:
    directory = package(tmp_path)
    (directory / "/".join("d" * 300)).mkdir(parents=True)
    with pytest.raises(UserFault, match="lies in more than 100 directories"):
        read_package(directory, MIB)


@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "setuid or setgid"])
def test_special_file_of_a_directory_is_refused(tmp_path: pathlib.Path, kind: str) -> None:
    directory = package(tmp_path, files={"usr/bin/a": b"x"})
    if kind == "a FIFO":
        os.mkfifo(directory / "odd")
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as one:
            here = os.open(directory, os.O_RDONLY)
            one.bind(f"/proc/self/fd/{here}/odd")
            os.close(here)
    else:
        (directory / "usr/bin/a").chmod(0o4755)
    with pytest.raises(UserFault, match=kind):
        read_package(directory, MIB)


@pytest.mark.parametrize("change", ["content", "link", "above"])
def test_file_that_becomes_another_one_before_it_is_written_ends_it(tmp_path: pathlib.Path, change: str) -> None:
    """The directory is a user's, root composes: what was judged is what is written."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/a").write_bytes(b"secret")
    directory = package(tmp_path, files={"usr/a": b"mine"})
    found = read_package(directory, MIB)
    file = found.tree.entries["usr/a"]
    assert isinstance(file, File)
    if change == "content":
        (directory / "usr/a").write_bytes(b"other")
    elif change == "link":
        (directory / "usr/a").unlink()
        (directory / "usr/a").symlink_to(tmp_path / "secret/a")
    else:
        (directory / "usr").rename(directory / "old")
        (directory / "usr").symlink_to(tmp_path / "secret")
    with pytest.raises(UserFault):
        list(read_pieces("usr/a", file))


# ---- which packages an image needs


def made(tmp_path: pathlib.Path, name: str, version: str = "", require: t.Sequence[str] = ()) -> Package:
    place = tmp_path / f"{name}-{version}"
    place.mkdir()
    return read_package(package(place, name, **({"version": version} if version else {}), require=list(require)), MIB)


def names(packages: t.Sequence[Package]) -> list[str]:
    return [str(one) for one in packages]


def test_required_packages_come_before_whoever_requires_them(tmp_path: pathlib.Path) -> None:
    wanted = made(tmp_path, "app", require=["b", "a"])
    known = [made(tmp_path, "a", "1", ["c"]), made(tmp_path, "b", "1", ["c"]), made(tmp_path, "c"),
             made(tmp_path, "unused")]  # fmt: skip
    assert names(resolve([wanted], known)) == ["c", "b 1", "a 1", "app"]


def test_newest_version_that_all_admit_is_taken(tmp_path: pathlib.Path) -> None:
    """`a` comes first and would take 1.10; what `b` says later counts for both."""
    libs = [made(tmp_path, "lib", version) for version in ("1.9", "1.10", "1.2", "2.0-rc1")]
    app = made(tmp_path, "app", require=["a", "b"])
    a = made(tmp_path, "a", "1", ["lib >= 1.2"])
    assert names(resolve([app], [*libs, a, made(tmp_path, "b", "1")])) == ["lib 2.0-rc1", "a 1", "b 1", "app"]
    assert names(resolve([app], [*libs, a, made(tmp_path, "b", "2", ["lib==1.10"])])) == [
        "lib 1.10",
        "a 1",
        "b 2",
        "app",
    ]


def test_given_package_counts_before_the_one_of_the_base(tmp_path: pathlib.Path) -> None:
    app, own = made(tmp_path, "app", require=["lib"]), made(tmp_path, "lib", "0.1")
    assert names(resolve([own, app], [made(tmp_path, "lib", "9")])) == ["lib 0.1", "app"]


@pytest.mark.parametrize(("require", "why"), [
    (["nope"], "package nope: is required by app, and is not there"), (["liz"], r"did you mean lib\?"),
    (["lib >= 3"], "no version is good for all: app requires lib >= 3; there is 1"),
    (["lib == 1", "two"], "app requires lib == 1; two requires lib >= 2"),
    (["round"], "requires itself: round -> trip -> round"), (["app"], "requires itself: app -> app"),
])  # fmt: skip
def test_requirement_that_cannot_be_met_is_refused_with_who_wants_it(
    tmp_path: pathlib.Path, require: list[str], why: str
) -> None:
    known = [made(tmp_path, "lib", "1"), made(tmp_path, "two", require=["lib >= 2"]),
             made(tmp_path, "round", require=["trip"]), made(tmp_path, "trip", require=["round"])]  # fmt: skip
    with pytest.raises(UserFault, match=why):
        resolve([made(tmp_path, "app", require=require)], known)
