# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node wants of the pool: marks that outlive everybody, one worker at a time, and what whoever waits hears."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    ImageFault,
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import (
    copy_image,
    copy_queue,
    copy_worker,
    disk_space,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.copy_queue import StillArriving, Want
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.copy_store import sources_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.locations import cache_of, limit_bytes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import cgroup, process_id

from ..pool.image_pool import MIB, add, find, settings_for, spoil

TINY = Want("local", "tiny@1")
PATIENCE_S = 60


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    """Of a node whose pool has one image, tiny@1."""
    here = settings_for(tmp_path)
    add(here.pool)
    return here


class Workers:
    """Processes as `vtorque-cache fill` is one, started by whoever wants something."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def start(self, here: NodeSettings) -> None:
        if (pid := os.fork()) == 0:
            with open(here.pool.parent / "said", "a", encoding="utf-8") as output:
                copy_worker.work_off(here, lambda arguments, *_level: print(arguments, file=output, flush=True))
            os._exit(0)
        self.pids.append(pid)

    def end(self) -> None:
        for pid in self.pids:
            os.waitpid(pid, 0)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Workers]:
    """No systemd here: the program is started by who wants something."""
    here = Workers()
    monkeypatch.setattr(copy_queue, "ensure_worker", here.start)
    yield here
    here.end()


def lines_of(here: NodeSettings) -> list[str]:
    return (here.pool.parent / "said").read_text().splitlines()


def work(here: NodeSettings, **more: t.Any) -> list[str]:
    arguments: list[str] = []
    copy_worker.work_off(here, lambda text, *_level: arguments.append(text), **more)
    return arguments


def test_wanted_copy_is_fetched_and_waiters_are_notified(settings: NodeSettings, workers: Workers) -> None:
    copy_queue.want(settings, TINY)
    copy_queue.wait(settings, TINY, Deadline.after(PATIENCE_S))
    assert cache_of(settings).find(find(settings)) is not None
    assert copy_queue.wanted(settings) == ()
    soon = Deadline.after(PATIENCE_S)  # the worker is still about to end
    while copy_queue.progress(settings) is not None:
        assert not soon.passed


def test_ten_who_want_the_same_at_once_fetch_it_once(settings: NodeSettings, workers: Workers) -> None:
    add(settings.pool, "big@1", os.urandom(32 * MIB))
    big = Want("local", "big@1")
    waiting = []
    for _job in range(10):
        if (pid := os.fork()) == 0:
            workers.pids.clear()
            copy_queue.want(settings, big)
            copy_queue.wait(settings, big, Deadline.after(PATIENCE_S))
            workers.end()
            os._exit(0 if cache_of(settings).find(find(settings, "big@1")) is not None else 1)
        waiting.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in waiting] == [0] * 10
    fetched = [line for line in lines_of(settings) if "fetched" in line]
    assert len(fetched) == 1, lines_of(settings)


def test_mark_outlives_a_killed_worker_and_the_next_goes_on(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    copy_queue.want(settings, TINY)
    if (pid := os.fork()) == 0:
        monkeypatch.setattr(copy_worker, "fetch", lambda *_words: signal.pause())
        copy_worker.work_off(settings, lambda *_words: None)
        os._exit(0)
    now, until = None, Deadline.after(PATIENCE_S)
    while now is None and not until.passed:
        now = copy_queue.progress(settings)
    with pytest.raises(StillArriving, match=r"tiny@1 is still arriving on cn1: image tiny@1: 0 % of"):
        copy_queue.wait(settings, TINY, Deadline.after(0.0))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with pytest.raises(StillArriving, match=r"nobody fetches it: is vtorque-cache\.path active there"):
        copy_queue.wait(settings, TINY, Deadline.after(0.0))
    assert copy_queue.wanted(settings) == (TINY,)
    assert work(settings)[0].startswith("local:tiny@1: fetched")
    copy_queue.wait(settings, TINY, Deadline.after(0.0))


def test_oldest_comes_first_and_what_fails_holds_up_nobody(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    add(settings.pool, "bad@1")
    spoil(settings.pool / "bad@1/disk.img")
    bad, gone = Want("local", "bad@1"), Want("local", "gone@1")
    for age, what in enumerate((gone, bad, TINY)):
        copy_queue.want(settings, what)
        os.utime(settings.images_dir / "wanted" / str(what), (1000 + age, 1000 + age))
    (settings.images_dir / "wanted/no mark of ours").touch()
    arguments = work(settings)
    assert [line.split(": ")[0] for line in arguments] == ["local:gone@1", "local:bad@1", "local:tiny@1"]
    for what, fault in ((gone, UserFault), (bad, ImageFault)):
        with pytest.raises(fault):
            copy_queue.wait(settings, what, Deadline.after(0.0))
    assert [what for what, _error in copy_queue.failures(settings)] == [bad, gone]


def test_just_the_content_that_was_wrong_is_refused(settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    disk = settings.pool / "tiny@1/disk.img"
    good = disk.read_bytes()
    spoil(disk)
    assert copy_queue.refusal(settings, find(settings)) is None
    copy_queue.want(settings, TINY)
    work(settings)
    assert isinstance(copy_queue.refusal(settings, find(settings)), ImageFault)
    spoil(disk, good)  # it was mended
    assert copy_queue.refusal(settings, find(settings)) is None
    copy_queue.want(settings, TINY)
    assert work(settings)[0].startswith("local:tiny@1: fetched")
    assert copy_queue.failures(settings) == ()


def test_copy_is_verified_again_once_a_boot_and_replaced_when_broken(
    settings: NodeSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)

    def once_more() -> str:
        copy_queue.want(settings, TINY)
        return work(settings)[-1].split(", ")[0]

    assert once_more() == "local:tiny@1: fetched"
    assert once_more() == "local:tiny@1: is there"
    monkeypatch.setattr(process_id, "boot_id", lambda: "another boot")
    assert once_more() == "local:tiny@1: verified"
    assert once_more() == "local:tiny@1: is there"
    decay(settings)
    assert once_more() == "local:tiny@1: is there", "nobody sees it without reading it all"
    monkeypatch.setattr(process_id, "boot_id", lambda: "a third")
    assert once_more() == "local:tiny@1: fetched"


def test_verify_finds_a_broken_copy_and_replaces_it(settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    copy_queue.want(settings, TINY)
    work(settings)
    assert work(settings, verify=["tiny@1"]) == ["local:tiny@1: verified"]
    decay(settings)
    arguments = work(settings, verify=["tiny@1"])
    assert "the copy is broken, and goes: disk.img has sha256" in arguments[0]
    assert arguments[-1].startswith("local:tiny@1: fetched")
    copy = cache_of(settings).find(find(settings))
    assert copy is not None
    assert copy.path.read_bytes() == find(settings).path.read_bytes()


def test_verify_replaces_a_copy_that_the_disk_does_not_give_back(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    copy_queue.want(settings, TINY)
    work(settings)
    really = images.read

    def read(image: images.Image, path: pathlib.Path, *more: int) -> t.Iterator[bytes]:
        if image.kept_in == "disk":
            raise images.unreadable(image, path, OSError(errno.EIO, "Input/output error"))
        return really(image, path, *more)

    monkeypatch.setattr(copy_image, "read", read)
    arguments = work(settings, verify=["tiny@1"])
    assert "the copy is broken, and goes: " in arguments[0]
    assert arguments[-1].startswith("local:tiny@1: fetched")


def decay(here: NodeSettings) -> None:
    """Other content, of which the file system knows nothing: as on a disk that loses bits."""
    cache = cache_of(here)
    spoil(cache.place / "tiny@1/disk.img")
    note = files.read_json(cache.place / "tiny@1/verified.json")
    cache.note_verified("tiny@1", {name: facts["sha256"] for name, facts in note["files"].items()})
    assert cache.find(find(here)) is not None


def test_limit_is_a_size_or_a_share_of_the_disk(tmp_path: pathlib.Path) -> None:
    total = os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert limit_bytes(settings_for(tmp_path, cache_bytes=5 * MIB)) == 5 * MIB
    assert limit_bytes(settings_for(tmp_path, cache_bytes=None, cache_share=0.5)) == total // 2


def test_no_room_is_the_sites_fault_and_told_to_who_waits(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    here = settings_for(tmp_path, cache_bytes=MIB)
    add(here.pool)
    copy_queue.want(here, TINY)
    work(here)
    with pytest.raises(SiteFault, match="raise cache_max"):
        copy_queue.wait(here, TINY, Deadline.after(0.0))


def test_missing_part_of_a_copy_is_promised_to_no_guest(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would find its disk full, or the copy, where there was room for both."""
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    really = images.read
    promised = []

    def look() -> None:
        with disk_space.counted(settings, Deadline.after(PATIENCE_S)) as taken:
            promised.append(taken.promised_bytes)

    def read(image: images.Image, path: pathlib.Path, *more: int) -> t.Iterator[bytes]:
        look()
        return really(image, path, *more)

    monkeypatch.setattr(copy_image, "read", read)
    look()
    copy_queue.want(settings, TINY)
    work(settings)
    look()
    total = sum(source.size for source in sources_of(find(settings)))
    assert (promised[0], promised[1], promised[-1]) == (0, total, 0)
    # what is only read again takes no room
    assert work(settings, verify=["tiny@1"]) == ["local:tiny@1: verified"]
    assert promised[-1] == 0


@pytest.mark.parametrize(("promised", "number", "fault"), [
    (1, errno.ENOSPC, SiteFault), (0, errno.ENOSPC, NodeFault), (1, errno.EIO, NodeFault),
])  # fmt: skip
def test_disk_that_guests_fill_under_a_copy_is_no_fault_of_the_node(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, promised: int, number: int, fault: type
) -> None:
    def refuse(*_words: object) -> t.NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    monkeypatch.setattr(copy_worker, "promised_bytes", lambda *_words: promised)
    monkeypatch.setattr(copy_image, "_write", refuse)
    copy_queue.want(settings, TINY)
    work(settings)
    error = copy_queue.failure(settings, TINY)
    assert error.__class__ is fault, error


def test_worker_leaves_the_cgroup_of_a_job(tmp_path: pathlib.Path) -> None:
    for place in ("cpuset", "unified"):
        (tmp_path / place / "torque/7.head").mkdir(parents=True)
        (tmp_path / place / "cgroup.procs").touch()
    own = tmp_path / "own"
    own.write_text("3:cpuset:/torque/7.head\n2:freezer:/torque/7.head\n1:name=systemd:/\n0::/torque/7.head\n")
    cgroup.leave_all(tmp_path, own)
    for place in ("cpuset", "unified"):
        assert (tmp_path / place / "cgroup.procs").read_text() == str(os.getpid())


def test_pool_that_goes_away_under_way_and_a_note_that_cannot_be_written_leave_no_mark(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(image: images.Image, *_words: object) -> t.NoReturn:
        image.path.unlink()
        raise SiteFault("the pool", "is away")

    def full(path: pathlib.Path, *_words: object, **_more: object) -> t.NoReturn:
        raise VTorqueError(f"{path} was not written")

    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    monkeypatch.setattr(copy_worker, "fetch", away)
    copy_queue.want(settings, TINY)
    work(settings)
    with pytest.raises(SiteFault, match="is away"):
        copy_queue.wait(settings, TINY, Deadline.after(0.0))
    monkeypatch.setattr(files, "write", full)
    copy_queue.want(settings, TINY)
    assert "is missing from the image pool" in work(settings)[0]
    assert copy_queue.wanted(settings) == ()
