# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of the pool where things really go wrong: full and read-only file systems, and several hands at once."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

MADE = """
import os, pathlib, subprocess, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import (
    checksum as image_copy, images, publish as publishing, retire as retiring,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool.revision import RevisionSpec

pool, place, ME = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), os.getuid()

def add(disk):
    return publishing.publish(RevisionSpec("debian12", disk, distro="debian", format="raw"), pool, owner_uid=ME)

def remove(entry):
    retiring.remove(entry, pool, place / "guests", owner_uid=ME)

def state():
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in pool.rglob("*")}
"""
BROKEN = """
def refused(call, *words):
    before = state()
    try:
        call(*words)
    except SiteFault as error:
        assert state() == before, (before, state())
        return str(error)
    raise AssertionError("it was done")

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "none", pool], check=True)
(place / "small").write_bytes(os.urandom(1 << 20))
(place / "great").write_bytes(os.urandom(2 << 20))
assert add(place / "small").name == add(place / "small").name.replace("@2", "@1")
image = images.find("debian12@1", pool, owner_uid=ME)

why = refused(add, place / "great")
assert "nothing was changed" in why and "free some space there" in why, why
# its blocks are there, and go while it is copied
real, publishing._room = publishing._room, lambda *_words: None
why = refused(add, place / "great")
assert "No space left" in why and "free some space there" in why, why
publishing._room = real
with (pool / "others").open("wb", buffering=0) as stream:
    try:
        while True:
            stream.write(bytes(4096))
    except OSError:
        pass
remove("debian12@2")
assert images.list_names(pool) == ("debian12@1",)
assert image_copy.verify(image)

subprocess.run(["mount", "-o", "remount,ro", pool], check=True)
why = refused(add, place / "small")
assert "Read-only" in why and "call it on the host that may write the pool" in why, why
why = refused(remove, "debian12@1")
assert "Read-only" in why, why
assert images.find("debian12", pool, owner_uid=ME) == image and image_copy.verify(image)
print("all held")
"""
AT_ONCE = """
image = add(pathlib.Path(sys.argv[3]))
print(image.name, image_copy.verify(image), image.path.read_bytes() == pathlib.Path(sys.argv[3]).read_bytes())
"""


def program(text: str, *arguments: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-c", MADE + text, *map(str, arguments)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def test_full_or_read_only_pool_is_as_it_was_and_says_why(tmp_path: pathlib.Path) -> None:
    """On a file system of its own; from a full one images can still be deleted."""
    (tmp_path / "pool").mkdir(mode=0o755)
    with program(BROKEN, tmp_path / "pool", tmp_path, before=("unshare", "--map-root-user", "--mount")) as running:
        out, err = running.communicate(timeout=120)
    assert out == "all held\n", err


def test_administrators_who_add_the_same_name_at_once_get_a_revision_each(tmp_path: pathlib.Path) -> None:
    """Each in a process of its own, and each finds its own disk in it."""
    (tmp_path / "pool").mkdir(mode=0o755)
    disks = [tmp_path / f"disk{number}" for number in range(4)]
    for disk in disks:
        disk.write_bytes(os.urandom(1 << 20))
    running = [program(AT_ONCE, tmp_path / "pool", tmp_path, disk) for disk in disks]
    output = [one.communicate(timeout=120) for one in running]
    assert sorted(out for out, _err in output) == [f"debian12@{number} True True\n" for number in range(1, 5)], output
    assert sorted(path.name for path in (tmp_path / "pool").iterdir()) == [f"debian12@{n}" for n in range(1, 5)]
