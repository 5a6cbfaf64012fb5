# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of images on a node: what is believed, what goes, and what a killed or spoiled copy becomes."""

from __future__ import annotations

import hashlib
import os
import pathlib
import select
import signal
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    ImageFault,
    NodeFault,
    SiteFault,
    UserFault,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import copy_image as image_fetch
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.copy_image import Pace, check, fetch
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.copy_store import Cache
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.locations import cache_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings

from ..pool.image_pool import MIB, add, find, settings_for, spoil

ALL = Pace(None)


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    """Of a node whose pool has one image, tiny@1."""
    here = settings_for(tmp_path)
    add(here.pool)
    return here


def nobody(_done: int, _total: int) -> None:
    return


def fetched(here: NodeSettings, name: str = "tiny@1") -> Cache:
    cache = cache_of(here)
    fetch(find(here, name), cache, ALL, nobody)
    return cache


def overlay(here: NodeSettings, base: pathlib.Path, guest: str = "vcn1-0") -> pathlib.Path:
    path = here.guests_dir / "7.head.1" / guest / "disk.qcow2"
    path.parent.mkdir(parents=True, exist_ok=True)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "raw", str(path)]
    subprocess.run(argv, check=True, timeout=60)
    return path


def test_copy_is_found_with_its_kernel_and_is_nobodys_to_write(settings: NodeSettings) -> None:
    cache = fetched(settings)
    image = find(settings)
    copy = cache.find(image)
    assert copy is not None
    assert copy.path == settings.images_dir / "copies/tiny@1/disk.img"
    assert copy.path.read_bytes() == image.path.read_bytes()
    assert copy.boot.kernel == copy.path.with_name("vmlinuz")
    assert copy.boot.kernel.read_bytes() == b"kernel of tiny@1"
    for file in (copy.path, copy.boot.kernel):
        assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (0, 0o444)
    # qemu's own user passes through, and lists nothing
    assert {path.stat().st_mode & 0o777 for path in (copy.path.parent, cache.place, settings.images_dir)} == {0o711}
    assert (copy.name, copy.format, copy.record) == (image.name, image.format, image.record)


def test_sparse_copy_takes_no_space(settings: NodeSettings) -> None:
    content = b"begin" + bytes(64 * MIB) + b"end"
    add(settings.pool, "hollow@1", content)
    copy = fetched(settings, "hollow@1").find(find(settings, "hollow@1"))
    assert copy is not None
    assert copy.path.read_bytes() == content
    assert copy.path.stat().st_blocks * 512 < 16 * MIB


def changed(copy: pathlib.Path) -> None:
    spoil(copy / "disk.img")


def longer(copy: pathlib.Path) -> None:
    with (copy / "disk.img").open("ab") as stream:
        stream.write(b"more")


def quietly_changed(copy: pathlib.Path) -> None:
    times = (copy / "disk.img").stat()
    spoil(copy / "disk.img")
    os.utime(copy / "disk.img", ns=(times.st_atime_ns, times.st_mtime_ns))


def another_file(copy: pathlib.Path) -> None:
    (copy / "new").write_bytes((copy / "disk.img").read_bytes())
    (copy / "new").chmod(0o444)
    (copy / "new").rename(copy / "disk.img")


def anybodys(copy: pathlib.Path) -> None:
    (copy / "verified.json").chmod(0o666)


def no_note(copy: pathlib.Path) -> None:
    (copy / "verified.json").write_text("{")


def no_kernel(copy: pathlib.Path) -> None:
    (copy / "vmlinuz").unlink()


@pytest.mark.parametrize(
    "damage",
    [changed, longer, quietly_changed, another_file, anybodys, no_note, no_kernel],
    ids=lambda one: one.__name__,
)
def test_a_copy_that_was_touched_is_not_believed_and_is_replaced(
    settings: NodeSettings,
    damage: t.Callable[[pathlib.Path], None],
) -> None:
    cache = fetched(settings)
    damage(cache.place / "tiny@1")
    assert cache.find(find(settings)) is None
    assert [bool(one.trouble) for one in cache.copies()] == [True]
    assert fetched(settings).find(find(settings)) is not None
    assert [one.trouble for one in cache.copies()] == [""]
    assert [path.name for path in sorted(cache.place.iterdir())] == [".use", "tiny@1"]


def test_name_whose_content_is_another_is_not_believed(settings: NodeSettings) -> None:
    cache = fetched(settings)
    (settings.pool / "tiny@1").rename(settings.pool / "tiny@9")
    add(settings.pool, content=b"else" * MIB)
    assert cache.find(find(settings)) is None


def test_image_without_a_record_has_no_copy(settings: NodeSettings) -> None:
    (settings.pool / "plain.img").write_bytes(b"x")
    (settings.pool / "plain.img").chmod(0o444)
    with pytest.raises(UserFault, match="no record"):
        fetch(find(settings, "plain"), cache_of(settings), ALL, nobody)


def test_a_killed_fetch_goes_on_where_it_was(settings: NodeSettings) -> None:
    image = add(settings.pool, "big@1", os.urandom(32 * MIB)) and find(settings, "big@1")
    hearing, saying = os.pipe()
    if (pid := os.fork()) == 0:

        def tell(done: int, _total: int) -> None:
            if done >= 12 * MIB:
                os.write(saying, b"x")
                signal.pause()

        fetch(image, cache_of(settings), ALL, tell)
        os._exit(0)
    os.close(saying)
    assert select.select([hearing], [], [], 60)[0]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(hearing)
    cache = cache_of(settings)
    there = (cache.part(image) / "disk.img").stat().st_size
    assert 12 * MIB <= there < 32 * MIB
    assert (cache.find(image), cache.copies()) == (None, ())
    read: list[int] = []
    pace = Pace(None)
    pace.spent = read.append  # type: ignore[method-assign]
    fetch(image, cache, pace, nobody)
    kernel = len(b"kernel of big@1")
    assert sum(read) == 32 * MIB - there + kernel, "what was here was not read from the pool again"
    assert cache.find(image) is not None


def test_copy_spoilt_by_a_power_cut_is_fetched_again(settings: NodeSettings) -> None:
    image, cache = find(settings), cache_of(settings)
    part = cache.part(image)
    part.mkdir(parents=True)
    (part / "disk.img").write_bytes(bytes(MIB))
    fetch(image, cache, ALL, nobody)
    copy = cache.find(image)
    assert copy is not None
    assert copy.path.read_bytes() == image.path.read_bytes()


def test_image_that_is_not_what_its_record_says_is_refused_after_a_second_look(
    settings: NodeSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(settings.pool / "tiny@1/disk.img")
    looks: list[object] = []
    grow = image_fetch._grow
    monkeypatch.setattr(image_fetch, "_grow", lambda *arguments: looks.append(arguments) or grow(*arguments))
    with pytest.raises(ImageFault, match=r"disk.img has sha256 .* its record says"):
        fetched(settings)
    assert len(looks) == 2
    assert [path.name for path in cache_of(settings).place.iterdir()] == []


def test_kernel_whose_digest_is_recorded_is_verified_too(settings: NodeSettings) -> None:
    digest = hashlib.sha256(b"another").hexdigest()
    add(settings.pool, "kernel@1", kernel_sha256=digest)
    with pytest.raises(ImageFault, match="vmlinuz has sha256"):
        fetched(settings, "kernel@1")


def test_pool_that_fails_under_way_is_the_sites_fault(settings: NodeSettings) -> None:
    image = find(settings)
    image.path.rename(image.path.with_name("away"))
    with pytest.raises(SiteFault, match="No such file"):
        fetch(image, cache_of(settings), ALL, nobody)


def test_full_disk_is_the_nodes_fault(settings: NodeSettings, tmp_path: pathlib.Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=True)
    try:
        with pytest.raises(NodeFault, match="No space left") as caught:
            fetch(find(settings), Cache(small / "copies", settings.guests_dir), ALL, nobody)
        assert caught.value.cause == "disk"
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_digest_is_taken_in_place_too(settings: NodeSettings) -> None:
    report: list[tuple[int, int]] = []
    check(find(settings), ALL, lambda done, total: report.append((done, total)))
    total = 4 * MIB + len(b"kernel of tiny@1")
    assert (report[0], report[-1]) == ((0, total), (total, total))
    spoil(settings.pool / "tiny@1/disk.img")
    with pytest.raises(ImageFault):
        check(find(settings), ALL, nobody)


def test_rate_is_kept_and_a_slow_pool_is_not_made_up_for() -> None:
    now, rests = [100.0], []

    def rest(seconds: float) -> None:
        rests.append(round(seconds, 3))
        now[0] += seconds

    pace = Pace(10, clock=lambda: now[0], rest=rest)
    for _chunk in range(3):
        pace.spent(10 * MIB)
    assert rests == [1.0, 1.0, 1.0]
    now[0] += 60.0
    for _chunk in range(3):
        pace.spent(10 * MIB)
    assert rests[3:] == [1.0, 1.0], "one second, no more, is made up for"


# -- room


def test_least_recently_used_copy_is_removed(settings: NodeSettings) -> None:
    for number in (1, 2, 3):
        add(settings.pool, f"other@{number}")
        fetched(settings, f"other@{number}")
    cache = cache_of(settings)
    for age, number in enumerate((2, 3, 1)):
        os.utime(cache.place / f"other@{number}", (1000 + age, 1000 + age))
    one = 4 * MIB + 64 * 1024
    cache.make_room(find(settings), 3 * one)
    assert [copy.image for copy in cache.copies()] == ["other@3", "other@1"]
    cache.used(find(settings, "other@3"))
    assert [copy.image for copy in cache.copies()] == ["other@1", "other@3"]


def test_copy_in_use_by_a_guest_is_never_removed(settings: NodeSettings) -> None:
    add(settings.pool, "other@1")
    cache = fetched(settings, "other@1")
    disk = overlay(settings, cache.place / "other@1/disk.img")
    assert cache.in_use() == {"other@1": ("vcn1-0",)}
    with pytest.raises(SiteFault, match=r"in use: other@1 \(vcn1-0\)"):
        cache.make_room(find(settings), 6 * MIB)
    with pytest.raises(SiteFault, match="in use by vcn1-0"):
        cache.remove("other@1")
    assert cache.find(find(settings, "other@1")) is not None
    disk.unlink()  # its guest is gone, however it went
    cache.make_room(find(settings), 6 * MIB)
    assert cache.copies() == ()


def test_overlay_that_cannot_be_read_keeps_all(settings: NodeSettings) -> None:
    add(settings.pool, "other@1")
    cache = fetched(settings, "other@1")
    (settings.guests_dir / "7.head.1/vcn1-0/disk.qcow2").mkdir(parents=True)
    with pytest.raises(OSError, match="Is a directory"):
        cache.make_room(find(settings), 6 * MIB)
    assert len(cache.copies()) == 1


def test_copy_is_not_removed_while_an_overlay_is_created(settings: NodeSettings) -> None:
    add(settings.pool, "other@1")
    cache = fetched(settings, "other@1")
    hearing, saying = os.pipe()
    with cache.lock_copies():
        if (pid := os.fork()) == 0:
            os.write(saying, b"begun")
            cache_of(settings).remove("other@1")
            os._exit(0)
        assert os.read(hearing, 8) == b"begun"
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        assert cache.find(find(settings, "other@1")) is not None
    assert os.waitpid(pid, 0)[1] == 0
    assert cache.find(find(settings, "other@1")) is None


def test_image_larger_than_the_cache_is_refused(settings: NodeSettings) -> None:
    with pytest.raises(SiteFault, match=r"has 4 MiB, .* may hold 1 MiB .*raise cache_max"):
        cache_of(settings).make_room(find(settings), MIB)


def test_space_promised_to_guests_is_not_used(settings: NodeSettings) -> None:
    with pytest.raises(SiteFault, match="no room for image tiny@1"):
        cache_of(settings).make_room(find(settings), 1 << 30, promised_bytes=1 << 60)


def test_unfinished_copy_of_another_image_goes_and_ones_own_counts(settings: NodeSettings) -> None:
    add(settings.pool, "other@1")
    cache = cache_of(settings)
    for name in ("tiny@1", "other@1"):
        cache.part(find(settings, name)).mkdir(parents=True)
    cache.make_room(find(settings), 6 * MIB)
    assert [path.name.split(":")[1] for path in cache.place.glob(".part*")] == ["tiny@1"]


def test_pool_is_told_from_a_copy(settings: NodeSettings) -> None:
    overlay(settings, find(settings).path)
    assert fetched(settings).in_use() == {}
    assert images.find("tiny", settings.pool).path.is_relative_to(settings.pool)
