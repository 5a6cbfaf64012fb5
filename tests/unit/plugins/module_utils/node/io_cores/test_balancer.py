# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker's rounds over the threads of a guest, in a tree like /proc, by a clock of the test's."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.io_cores import balancer, changes, interrupts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import claims, threads
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.pins import Pins
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout

from ..conftest import PATIENCE_S, Node

QEMU, SERVER = 100, 150
PINS = Pins(((5,), (6,)), (1, 2, 3), 1)


class Play:
    """A guest with a thread of vCPU and three of I/O, and a worker that looks at it."""

    def __init__(self, node: Node, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, pins: Pins = PINS) -> None:
        self.root, self.now, self.log = root / "proc", 1000.0, list[str]()
        self.node, self.alone, self.placed = node, False, list[tuple[int, ...]]()
        self.found, self.fault = 0, ""
        self.wanted: dict[int, float] = {}
        monkeypatch.setattr(threads, "PROC", self.root)
        monkeypatch.setattr(threads, "place_threads", self.place)
        monkeypatch.setattr(threads, "read_kernel_threads", lambda _qemu: (201,))
        monkeypatch.setattr(balancer.time, "monotonic", lambda: self.now)
        for number, of, name in (
            (QEMU, QEMU, "qemu-system-x86"), (101, QEMU, "CPU 0/KVM"), (102, QEMU, "IO iothread1"),
            (SERVER, SERVER, "virtiofsd"), (201, 0, f"vhost-{QEMU}"),
        ):  # fmt: skip
            self.put(number, of, name)
        part = node.part()
        self.directory = node.settings.start_dir(part.job_id, part.start) / "vcn1-1"
        self.directory.mkdir(parents=True)
        claims.claim(self.directory, pins)
        self.record = node.settings.record_dir(part.job_id, part.start)
        self.worker = balancer.Balancer(
            part, node.settings, [self.directory], self.log.append, self.find, lambda: self.alone
        )

    def put(self, number: int, of: int, name: str) -> None:
        place = self.root / str(of) / "task" / str(number) if of else self.root / str(number)
        place.mkdir(parents=True)
        (place / "comm").write_text(f"{name}\n")
        self.use(number, 0.0)

    def use(self, number: int, seconds: float) -> None:
        self.wanted[number] = self.wanted.get(number, 0.0) + seconds
        (place,) = (path for path in self.root.rglob(str(number)) if (path / "comm").exists())
        half_ns = round(self.wanted[number] * 1e9 / 2)  # it ran for a half, and waited for the other
        (place / "schedstat").write_text(f"{half_ns} {half_ns} 1\n")

    def find(self, directory: pathlib.Path) -> tuple[int, tuple[int, ...]] | None:
        assert directory == self.directory
        self.found += 1
        return (QEMU, (SERVER,)) if (self.root / str(QEMU)).exists() else None

    def place(self, _name: str, _qemu: int, _servers: object, pins: Pins, *, exactly: bool) -> tuple[str, ...]:
        assert exactly
        if self.fault:
            raise NodeFault("the threads of guest vcn1-1", self.fault)
        self.placed.append(pins.others)
        return ()

    def rounds(self, count: int, away: t.Container[str] = (), *, suspended: bool = False, **seconds: float) -> None:
        for _round in range(count):
            for number, used in seconds.items():
                self.use(int(number[1:]), used)
            self.now += balancer.ROUND_S
            self.worker.follow(away, suspended=suspended)

    @property
    def written(self) -> dict[str, t.Any]:
        return json.loads((self.record / layout.IO_CORES).read_text())  # type: ignore[no-any-return]


@pytest.fixture
def play(node: Node, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    return Play(node, tmp_path, monkeypatch)


BUSY = {"t102": 0.9, "t150": 0.6, "t201": 0.4}


def test_threads_under_load_get_more_cores_and_give_them_back(play: Play) -> None:
    play.rounds(1)
    assert play.placed == [(1,)]
    play.rounds(30, **BUSY)
    assert play.placed[-1] == (1, 2, 3)
    play.rounds(30)
    assert play.placed[-1] == (1,)
    assert [used for _at, used, _load in play.written["changes"]] == [2, 3, 1]
    assert {key: play.written[key] for key in ("cores", "least", "most_used", "count")} == {
        "cores": "1-3", "least": 1, "most_used": 3, "count": 3,
    }  # fmt: skip
    assert changes.read_summary(play.record) == changes.Summary(3, 3)
    assert play.log[0] == "virtual I/O on cores 1-2, 2 in place of 1: it wanted 1.90 cores"
    assert play.log[-1].startswith("virtual I/O on cores 1, 1 in place of 3: it wanted 0.00")


def test_load_of_vcpus_is_none_of_virtual_io(play: Play) -> None:
    play.rounds(40, t101=1.0, t102=0.3)
    assert set(play.placed) == {(1,)}
    assert changes.read_summary(play.record) == changes.Summary(1, 0)


def test_threads_are_looked_after_every_ten_rounds_though_nothing_changes(play: Play) -> None:
    play.rounds(21)
    assert play.placed == [(1,)] * 3
    assert play.found == 1, "the node's processes are searched once"


def test_guest_that_returns_from_the_disk_has_its_new_threads_placed(play: Play) -> None:
    play.rounds(2)
    (play.root / str(QEMU)).rename(play.root / "gone")
    play.rounds(3, away=("vcn1-1",))
    assert (play.placed, play.found) == ([(1,)], 1)
    (play.root / "gone").rename(play.root / str(QEMU))
    play.rounds(1)
    (play.root / str(QEMU)).rename(play.root / "gone")
    play.rounds(1)
    (play.root / "gone").rename(play.root / str(QEMU))
    play.rounds(1)
    assert play.found == 3
    assert len(play.placed) == 2


def test_thread_that_cannot_be_placed_is_named_once_and_ends_nothing(play: Play) -> None:
    play.fault = "vhost-100 (201) may run on 0-7"
    play.rounds(25, **BUSY)
    assert [line for line in play.log if "vhost-100" in line] == [
        "the threads of guest vcn1-1: vhost-100 (201) may run on 0-7"
    ]
    assert play.written["most_used"] == 3


def test_interrupts_come_along_where_the_job_has_the_node_alone(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[tuple[int, ...]] = []

    def move(numbers: tuple[int, ...], cores: tuple[int, ...], key: str, _settings: object) -> tuple[int, ...]:
        assert (numbers, key) == ((24, 25), "7.head.1")
        moved.append(cores)
        return (24,)

    monkeypatch.setattr(interrupts, "find_interrupts", lambda _bridge: (24, 25))
    monkeypatch.setattr(interrupts, "move", move)
    play.rounds(12)
    assert moved == []
    play.alone = True
    play.rounds(20, **BUSY)
    assert moved[0] in ((1,), (1, 2))
    assert moved[-1] == (1, 2, 3)
    assert sum("1 of 2 interrupts of the node's network card come to the cores" in line for line in play.log) == 1


def test_interrupts_go_back_while_the_job_is_suspended(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have the node meanwhile."""
    done: list[str] = []
    monkeypatch.setattr(interrupts, "find_interrupts", lambda _bridge: (24,))
    monkeypatch.setattr(interrupts, "move", lambda *_words: done.append("moved") or (24,))
    monkeypatch.setattr(interrupts, "put_back", lambda *_words: done.append("back") or ())
    play.alone = True
    play.rounds(1)
    play.rounds(3, suspended=True)
    assert done == ["moved", "back", "back", "back"]
    play.rounds(10)
    assert done[4:] == ["moved"]


def test_balancer_that_fails_leaves_the_guests_to_their_watch(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_words: object) -> t.NoReturn:
        raise RuntimeError("of a kind that nobody thought of")

    monkeypatch.setattr(balancer, "decide", broken)
    play.rounds(3)
    assert play.log == [
        "cores for virtual I/O stay as they are from now on: RuntimeError: of a kind that nobody thought of"
    ]
    assert play.worker.due_s() == float("inf")


def test_start_without_such_cores_is_never_due_and_writes_nothing(
    node: Node, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play(node, tmp_path, monkeypatch, Pins(((5,), (6,)), (1, 2)))
    assert play.worker.due_s() == float("inf")
    play.rounds(5, **BUSY)
    assert (play.placed, play.record.exists()) == ([], False)


def test_changes_beyond_the_limit_are_counted_and_no_more(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "LIMIT", 4)
    file = changes.Changes(tmp_path / "record", (1, 2), 1, None)
    file.begin()
    for number in range(6):
        file.add(100.0 + number, 1 + number % 2, 0.5)
    content = json.loads((tmp_path / "record" / layout.IO_CORES).read_text())
    assert (content["count"], len(content["changes"]), file.is_full) == (6, 4, True)


def allowed(process: int) -> set[tuple[int, ...]]:
    """The processors on which the threads of a process may run, by the kernel's word."""
    return {thread.allowed for thread in threads.read_threads(process)}


BUSY_THREADS = """
import hashlib, os, sys, threading, time
for _thread in range(2):
    threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 2**31 - 1), daemon=True).start()
while os.getppid() == int(sys.argv[1]):
    time.sleep(0.5)
"""
"""Two threads that compute outside of Python's lock, until the test ends the process, or has ended itself."""


def test_threads_of_a_real_process_follow_their_load_onto_a_core_more_and_back(
    node: Node, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else runs on this machine, its threads want a core each, and none while they are stopped."""
    cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
    monkeypatch.setattr(balancer, "ROUND_S", 0.2)
    part = node.part()
    directory = node.settings.start_dir(part.job_id, part.start) / "vcn1-1"
    directory.mkdir(parents=True)
    claims.claim(directory, Pins((), cores, 1))
    server = subprocess.Popen([sys.executable, "-c", BUSY_THREADS, str(os.getpid())])
    log: list[str] = []
    worker = balancer.Balancer(
        part, node.settings, [directory], log.append, lambda _directory: (server.pid, ()), lambda: False
    )

    def follow_until(where: set[tuple[int, ...]]) -> None:
        end = time.monotonic() + PATIENCE_S
        while allowed(server.pid) != where or not log:
            assert time.monotonic() < end, (allowed(server.pid), log)
            assert server.poll() is None
            threading.Event().wait(worker.due_s())
            worker.follow()

    try:
        follow_until({cores})
        server.send_signal(signal.SIGSTOP)
        follow_until({cores[:1]})
    finally:
        server.kill()
        server.wait()
    assert ["2 in place of 1" in log[0], "1 in place of 2" in log[-1]] == [True, True]
