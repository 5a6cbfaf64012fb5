# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image of a user's is what it was when it was submitted, and names no other file."""

from __future__ import annotations

import errno
import os
import pathlib
import struct
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import user_image
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MOST = 64
MIB = 1 << 20


def qcow2(path: pathlib.Path, size: str = "32M", *options: str) -> pathlib.Path:
    command = ["qemu-img", "create", "-q", "-f", "qcow2", *options, path, size]
    subprocess.run(command, check=True, cwd=path.parent, timeout=60)
    return path


def partitioned(path: pathlib.Path, size: int = MIB) -> pathlib.Path:
    """A raw disk with a table of one partition."""
    sector = bytearray(512)
    sector[446:462] = struct.pack("<B3sB3sII", 0x80, b"", 0x83, b"", 8, 8)
    sector[510:] = b"\x55\xaa"
    path.write_bytes(sector.ljust(size, b"\0"))
    return path


def test_user_image_that_boots_is_accepted(tmp_path: pathlib.Path) -> None:
    for path, kind, size in ((qcow2(tmp_path / "a"), "qcow2", 32 * MIB), (partitioned(tmp_path / "b"), "raw", MIB)):
        found = user_image.inspect_image(str(path), MOST)
        assert (found.header.format, found.header.virtual_bytes) == (kind, size)
        assert found == user_image.inspect_image(str(path), MOST)


def _later(path: pathlib.Path) -> None:
    facts = path.stat()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1000))


def _longer(path: pathlib.Path) -> None:
    facts = path.stat()
    with path.open("ab") as stream:
        stream.write(bytes(512))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _others(path: pathlib.Path) -> None:
    facts = path.stat()
    with path.open("r+b") as stream:
        stream.seek(600)
        stream.write(b"other")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize("change", [_later, _longer, _others])
def test_user_image_that_changed_has_another_digest(
    tmp_path: pathlib.Path, change: t.Callable[[pathlib.Path], None]
) -> None:
    path = partitioned(tmp_path / "disk")
    before = user_image.inspect_image(str(path), MOST).digest
    change(path)
    assert user_image.inspect_image(str(path), MOST).digest != before


def test_another_name_or_place_is_no_change(tmp_path: pathlib.Path) -> None:
    path = partitioned(tmp_path / "disk")
    before = user_image.inspect_image(str(path), MOST).digest
    (tmp_path / "link").symlink_to(path)
    assert user_image.inspect_image(str(tmp_path / "link"), MOST).digest == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("32M", "-b", "/etc/shadow", "-F", "raw", "-u"), "has a backing file"),
        (("32M", "-o", "data_file=other.raw"), "external file"),
        (("65M",), "is a disk of 65 MiB; the site allows 64 MiB (image_max)"),
        (("32M", "-o", "encrypt.format=aes,encrypt.key-secret=s", "--object", "secret,id=s,data=x"), "is encrypted"),
    ],
)
def test_hostile_qcow2_is_refused(tmp_path: pathlib.Path, options: tuple[str, ...], message: str) -> None:
    path = qcow2(tmp_path / "bad", *options)
    with pytest.raises(UserFault) as caught:
        user_image.inspect_image(str(path), MOST)
    assert caught.value.what == f"img={path}"
    assert message in caught.value.why


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (bytes(512), "no disk with a table of partitions"),
        (b"x" * 513, "no whole sectors"),
        (b"KDMV" + bytes(508), "VMDK"),
        (b"# Disk DescriptorFile\nversion=1\n".ljust(512), "VMDK"),
        (b"QFI\xfb" + b"\xff" * 508, "version 4294967295"),
        (b"QFI\xfb\0\0\0\3", "cut off"),
        (b"\x1f\x8b" + bytes(510), "packed (gzip)"),
    ],
)
def test_garbage_is_refused(tmp_path: pathlib.Path, content: bytes, message: str) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(content)
    with pytest.raises(UserFault) as caught:
        user_image.inspect_image(str(path), MOST)
    assert message in caught.value.why


def test_size_that_no_disk_has_is_refused(tmp_path: pathlib.Path) -> None:
    path = qcow2(tmp_path / "bomb")
    with path.open("r+b") as stream:
        stream.seek(24)
        stream.write(struct.pack(">Q", 1 << 60))
    with pytest.raises(UserFault, match="garbage"):
        user_image.inspect_image(str(path), MOST)


def test_user_image_that_is_no_file_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, pathlib.Path("/dev/zero")):
        with pytest.raises(UserFault, match=r"is not a regular file|Is a directory"):
            user_image.inspect_image(str(path), MOST)
    with pytest.raises(UserFault, match="is empty"):
        user_image.inspect_image("/proc/self/environ", MOST)


@pytest.mark.parametrize(
    ("number", "fault"), [(errno.EIO, SiteFault), (errno.ESTALE, SiteFault), (errno.EACCES, UserFault)]
)
def test_a_file_server_that_fails_is_no_fault_of_the_users(
    monkeypatch: pytest.MonkeyPatch, number: int, fault: type
) -> None:
    def fails(_path: pathlib.Path) -> t.NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(user_image, "open_disk", fails)
    with pytest.raises(fault, match=f"cannot be read: {os.strerror(number)}"):
        user_image.inspect_image("/home/alice/own.qcow2", MOST)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([b"", b"QFI\xfb\0\0\0\3", b"QFI\xfb\0\0\0\2"]), st.binary(max_size=2048))
def test_any_bytes_are_an_image_or_a_fault_of_ours(tmp_path: pathlib.Path, begin: bytes, rest: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(begin + rest)
    try:
        found = user_image.inspect_image(str(path), MOST)
    except UserFault:
        return
    assert found.header.virtual_bytes <= MOST * MIB
