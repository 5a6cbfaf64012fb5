# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking images away, and never one that somebody stands on."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images, retire
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage.overlay import make_overlay
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

ME = os.getuid()


@pytest.fixture
def guests(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "guests/7.head.1/vcn1-1").mkdir(parents=True)
    return tmp_path / "guests"


def remove(entry: str, pool: ImagePool, guests: pathlib.Path) -> None:
    retire.remove(entry, pool.path, guests, owner_uid=ME)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tiny", ("tiny@2", "tiny@9", "tiny@10")),
        ("tiny@9", ("tiny@9",)),
        ("old", ("old.img",)),
        ("old.img", ("old.img",)),
        ("none", ()),
        ("tiny@7", ()),
    ],
)
def test_name_of_an_image_means_its_revisions(image_pool: ImagePool, name: str, found: tuple[str, ...]) -> None:
    assert retire.entries(name, image_pool.path) == found


@pytest.mark.parametrize("name", ["../pool", "/", "tiny@2/record.json", ".", "", "notes.txt\n", "*"])
def test_nothing_but_images_can_be_named(image_pool: ImagePool, name: str) -> None:
    with pytest.raises(UserFault, match="not the name of an image"):
        retire.entries(name, image_pool.path)


@pytest.mark.parametrize("entry", ["tiny@10", "old.img"])
def test_unused_revision_is_removed_whole(image_pool: ImagePool, guests: pathlib.Path, entry: str) -> None:
    stays = set(images.list_names(image_pool.path)) - {entry}
    remove(entry, image_pool, guests)
    assert set(images.list_names(image_pool.path)) == stays
    assert not list(image_pool.path.glob(".work.*"))
    with pytest.raises(UserFault, match="no such image"):
        remove(entry, image_pool, guests)


def test_greatest_number_of_what_went_is_kept(image_pool: ImagePool, guests: pathlib.Path) -> None:
    for entry in ("tiny@2", "tiny@10", "tiny@9"):
        remove(entry, image_pool, guests)
    stored = sorted(path.name for path in image_pool.path.glob(".retired.*"))
    assert ".retired.tiny@10" in stored
    assert ".retired.tiny@2" not in stored


def test_image_that_nobody_believes_can_go(image_pool: ImagePool, guests: pathlib.Path) -> None:
    (image_pool.path / "tiny@11").symlink_to("/etc")
    (image_pool.path / "tiny@12").mkdir()
    for entry in ("tiny@11", "tiny@12"):
        remove(entry, image_pool, guests)
        assert not os.path.lexists(image_pool.path / entry)
    assert pathlib.Path("/etc/passwd").exists()


def test_what_a_guest_stands_on_stays(image_pool: ImagePool, guests: pathlib.Path) -> None:
    overlay = guests / "7.head.1/vcn1-1/disk.qcow2"
    make_overlay(image_pool.find("tiny@10"), overlay, Deadline.after(60))
    with pytest.raises(retire.InUse, match=r"guest vcn1-1 of 7\.head\.1"):
        remove("tiny@10", image_pool, guests)
    assert image_pool.find("tiny").name == "tiny@10"
    remove("tiny@9", image_pool, guests)
    overlay.unlink()
    remove("tiny@10", image_pool, guests)


def test_revision_open_in_a_process_stays(image_pool: ImagePool, guests: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """It is named, and gives itself its name: nothing of that moves a terminal."""
    program = shutil.copy(shutil.which("sleep") or "", tmp_path / "sl\x1b[2J")
    with (image_pool.path / "tiny@10/disk.qcow2").open("rb") as stream:
        holder = subprocess.Popen(["sleep", "600"], executable=program, stdin=stream)
        try:
            end = Deadline.after(60)
            # it has our name for a moment
            while pathlib.Path(f"/proc/{holder.pid}/comm").read_bytes() != b"sl\x1b[2J\n":
                assert not end.passed
            with pytest.raises(retire.InUse, match=rf"process {holder.pid} \(sl\?\[2J\)"):
                remove("tiny@10", image_pool, guests)
        finally:
            holder.kill()
            holder.wait()
    assert "tiny@10" in images.list_names(image_pool.path)


def test_guest_that_begins_meanwhile_keeps_its_image(
    image_pool: ImagePool, guests: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [(), ("guest vcn1-1 of 7.head.1",)]
    monkeypatch.setattr(retire, "users", lambda *_words: answers.pop(0))
    with pytest.raises(retire.InUse):
        remove("tiny@10", image_pool, guests)
    assert image_pool.find("tiny").name == "tiny@10"
