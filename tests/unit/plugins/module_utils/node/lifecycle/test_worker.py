# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The worker of a start: whatever dies, and whenever, nothing is left; processes, locks and files are real."""

from __future__ import annotations

import fcntl
import gc
import os
import pathlib
import re
import select
import signal
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import (
    client,
    monitor,
    present_absent,
    worker,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import build
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.layout import job_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id

from .making_steps import STEPS

if t.TYPE_CHECKING:
    from ..conftest import Node


def at(node: Node, step: str, happens: t.Callable[[], None], *, after: bool = False) -> None:
    """Let something happen before or after a step; of two guests at the second, so that there is something to undo."""
    room, name = STEPS[step]
    calls: list[int] = []

    def wrap(real: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def changed(*arguments: t.Any, **more: t.Any) -> t.Any:
            calls.append(1)
            second = name in ("make_overlay", "write_iso", "render_xml", "create")
            hit = is_builder() and len(calls) == (2 if second else 1)
            if hit and not after:
                happens()
            result = real(*arguments, **more)
            if hit and after:
                happens()
            return result

        return changed

    if name == "Domains":

        def connect(*arguments: t.Any, **more: t.Any) -> t.Any:
            connection = node.hypervisor.connect(*arguments, **more)
            connection.create = wrap(connection.create)  # type: ignore[method-assign]
            return connection

        name = "create"
        node.patch.setattr(room, "Domains", connect)
    else:
        node.patch.setattr(room, name, wrap(getattr(room, name)))


def is_builder() -> bool:
    """Who undoes goes through some of the same steps."""
    return os.getpgid(0) == os.getpid() != os.getsid(0)


def parent_of(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(*whom: str) -> t.Callable[[], None]:
    """What the builder does to itself and to those above it."""

    def strike() -> None:
        builder, its_worker = os.getpid(), os.getppid()
        pids = {"builder": builder, "worker": its_worker, "front": parent_of(its_worker)}
        for one in whom:
            os.kill(pids[one], signal.SIGKILL)
        signal.pause()  # until the kernel does to us what it did to the worker

    return strike


def over(node: Node) -> bool:
    return start_lock.tombstone(node.settings, job_key("7.head", 1)).exists()


def test_worker_stays_and_holds_the_lock(node: Node) -> None:
    found = client.request_guests(node.part(2), node.settings, node.soon())
    assert [one.name for one in found] == ["vcn1-1", "vcn1-2"]
    assert start_lock.is_locked(node.lock)
    assert os.getsid(node.worker) == node.worker
    assert os.readlink(f"/proc/{node.worker}/fd/1") == str(node.log)
    pid = node.worker
    assert node.absent() == ("domain vcn1-1", "domain vcn1-2", "directory 7.head.1", "slot 1", "slot 2")
    assert node.things == []
    node.wait_for_the_end_of(pid)


def test_worker_writes_in_the_jobs_log(node: Node) -> None:
    node.open_log()
    client.request_guests(node.part(), node.settings, node.soon())
    pid = node.worker
    node.wait_for_words(f"worker {pid} watches the guests of start 7.head.1")
    node.absent()
    node.wait_for_words(f"worker {pid} took away: domain vcn1-1, directory 7.head.1, slot 1")
    node.wait_for_the_end_of(pid)


def test_worker_looks_for_circles_though_its_caller_did_without(node: Node) -> None:
    real = monitor.Watching.run

    def run(watching: monitor.Watching, *arguments: t.Any) -> str:
        worker.log(f"looks: {gc.isenabled()}")
        return real(watching, *arguments)

    node.open_log()
    node.patch.setattr(monitor.Watching, "run", run)
    gc.disable()
    try:
        client.request_guests(node.part(), node.settings, node.soon())
    finally:
        gc.enable()
    node.wait_for_words("looks: True")


def test_worker_keeps_no_descriptor_of_its_caller(node: Node) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    client.request_guests(node.part(), node.settings, node.soon(), caller=writing)
    os.close(writing)
    assert os.read(reading, 1) == b""  # a caller reads until the last end is closed


def test_second_request_gets_the_same_answer_and_no_second_worker(node: Node) -> None:
    first = client.request_guests(node.part(2), node.settings, node.soon())
    pid = node.worker
    assert client.request_guests(node.part(2), node.settings, node.soon()) == first
    assert node.worker == pid
    assert not over(node)


def test_other_request_for_the_start_is_refused(node: Node) -> None:
    client.request_guests(node.part(), node.settings, node.soon())
    with pytest.raises(VTorqueError, match=f"process {node.worker} watches them"):
        client.request_guests(node.part(ram_mib=128), node.settings, node.soon())
    assert list(node.hypervisor.running) == ["vcn1-1"]
    assert not over(node)
    assert start_lock.is_locked(node.lock)


def test_request_after_a_killed_worker_becomes_the_worker(node: Node) -> None:
    first = client.request_guests(node.part(), node.settings, node.soon())
    killed = node.worker
    os.kill(killed, signal.SIGKILL)
    node.wait_for_the_end_of(killed)
    assert client.request_guests(node.part(), node.settings, node.soon()) == first
    assert node.worker != killed


def test_start_that_is_over_is_refused(node: Node) -> None:
    node.absent()
    with pytest.raises(VTorqueError, match="is over"):
        client.request_guests(node.part(), node.settings, node.soon())
    assert node.things == []


@pytest.mark.parametrize("step", STEPS)
def test_failure_of_any_step_removes_all_and_keeps_its_class(node: Node, step: str) -> None:
    def fail() -> None:
        raise UserFault("no", "because")

    at(node, step, fail)
    with pytest.raises(UserFault, match="no: because"):
        client.request_guests(node.part(2), node.settings, node.soon())
    assert node.things == []
    assert over(node)
    assert not start_lock.is_locked(node.lock)


def test_fault_of_ours_is_answered_and_undone(node: Node) -> None:
    def fail() -> None:
        raise KeyError("x")

    at(node, "seed", fail)
    with pytest.raises(VTorqueError, match="a fault in vTorque itself: KeyError"):
        client.request_guests(node.part(2), node.settings, node.soon())
    assert node.things == []


def test_failed_removal_is_the_nodes_fault(node: Node) -> None:
    def fail() -> None:
        node.hypervisor.dead = True
        raise VTorqueError("no answer")

    at(node, "start of the domain", fail)
    with pytest.raises(NodeFault) as caught:
        client.request_guests(node.part(2), node.settings, node.soon())
    assert caught.value.cause == "libvirt"


@pytest.mark.parametrize(
    ("whom", "removal"),
    [((), "remove_under_lock"), (("worker",), "end_start")],
    ids=["by the worker", "by the front, whose worker was killed"],
)
def test_removal_that_fails_in_a_way_that_nobody_foresaw_takes_no_answer_with_it(
    node: Node, whom: tuple[str, ...], removal: str
) -> None:
    """What was first is told; what stays is there for the epilogue to take."""
    real = getattr(present_absent, removal)

    def removing(*arguments: t.Any, **more: t.Any) -> t.Any:
        raise RuntimeError("not ours")

    def fail() -> None:
        raise UserFault("no", "because")

    node.patch.setattr(present_absent, removal, removing)
    at(node, "seed", kill(*whom) if whom else fail)
    error = node.ask(node.part(2)).answer()["error"]
    assert error["why"] == ("was killed before it had an answer" if whom else "because")
    assert node.things != []
    node.patch.setattr(present_absent, removal, real)
    node.absent()
    assert node.things == []
    assert not start_lock.is_locked(node.lock)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "whom", [("builder",), ("worker",), ("front",), ("worker", "builder"), ("front", "worker", "builder")], ids="+".join
)
@pytest.mark.parametrize("step", STEPS)
def test_kill_of_any_process_at_any_step_leaves_nothing(
    node: Node, step: str, whom: tuple[str, ...], after: bool
) -> None:
    """As long as one of them lives it is undone at once; in any case when the epilogue has come."""
    at(node, step, kill(*whom), after=after)
    answer = node.ask(node.part(2)).answer()
    assert "guests" not in answer
    if "front" not in whom:
        assert "killed" in answer["error"]["why"] or "ended with status -9" in answer["error"]["why"]
        assert node.things == []
    node.absent()
    assert node.things == []
    assert not start_lock.is_locked(node.lock)


def test_worker_that_is_killed_while_the_job_runs_leaves_its_guests_to_the_epilogue(node: Node) -> None:
    client.request_guests(node.part(2), node.settings, node.soon())
    pid = node.worker
    os.kill(pid, signal.SIGKILL)
    node.wait_for_the_end_of(pid)
    assert len(node.hypervisor.running) == 2
    assert not start_lock.is_locked(node.lock)
    assert node.absent() == ("domain vcn1-1", "domain vcn1-2", "directory 7.head.1", "slot 1", "slot 2")
    assert node.things == []


def test_absent_overtakes_a_present_that_waits_for_its_guests(node: Node) -> None:
    wait = node.reached(build, "wait_ready")
    asked = node.ask(node.part(2))
    wait()
    assert node.absent() == ("domain vcn1-1", "domain vcn1-2", "directory 7.head.1", "slot 1", "slot 2")
    assert node.things == []
    assert "is over" in asked.answer()["error"]["what"]


def test_a_caller_who_went_away_is_a_cancel(node: Node) -> None:
    wait = node.reached(build, "wait_ready")
    asked = node.ask()
    wait()
    os.close(asked.caller)
    assert asked.answer()["error"]["what"] == "the request was cancelled"
    assert node.things == []
    assert over(node)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_is_a_cancel(node: Node, number: int) -> None:
    wait = node.reached(build, "wait_ready")
    asked = node.ask()
    wait()
    os.kill(asked.pid, number)
    error = asked.answer()["error"]
    assert (error["what"], error["why"]) == ("the request was cancelled", "SIGTERM at the wait for vcn1-1")
    assert node.things == []


def test_cancel_does_not_wait_for_a_call_that_never_returns(node: Node) -> None:
    """As libvirt's may be: no signal ends it but KILL."""
    node.patch.setattr(worker, "BUILDER_GRACE_S", 0.1)

    def hang() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        node.hypervisor.pause("reached")
        while True:
            signal.pause()

    at(node, "start of the domain", hang)
    asked = node.ask(node.part(2))
    node.wait_for_file(node.hypervisor.place / "reached.paused")
    os.kill(asked.pid, signal.SIGTERM)
    # both are started at once: which of them said last what it does is open
    assert re.fullmatch(r"SIGTERM at the (seed|start) of vcn1-[12]( by libvirt)?", asked.answer()["error"]["why"])
    assert node.things == []


def test_answer_that_nobody_reads_is_a_cancel(node: Node) -> None:
    """The caller is killed when the guests are ready, before it hears of that."""
    share = worker._Worker._share

    def kill_who_asked(self: worker._Worker, lock: start_lock.Lock) -> bool:
        who = os.getppid()
        handle = os.pidfd_open(who)
        os.kill(who, signal.SIGKILL)
        select.select([handle], [], [])
        return share(self, lock)

    node.patch.setattr(worker._Worker, "_share", kill_who_asked)
    assert node.ask(node.part(2)).answer() == {}
    node.wait_for_file(start_lock.tombstone(node.settings, job_key("7.head", 1)))
    with start_lock.lock_alone(node.lock, node.settings, node.soon()) as took_away:
        assert "domain vcn1-1" in took_away
    assert node.things == []


def test_cancel_that_meets_the_answer_is_a_cancel(node: Node) -> None:
    share = worker._Worker._share

    def cancel(self: worker._Worker, lock: start_lock.Lock) -> bool:
        os.kill(os.getppid(), signal.SIGTERM)
        assert select.select([self.noted], [], [], 60)[0], "who asked passes it on"
        return share(self, lock)

    node.patch.setattr(worker._Worker, "_share", cancel)
    assert node.ask().answer()["error"]["what"] == "the request was cancelled"
    with start_lock.lock_alone(node.lock, node.settings, node.soon()):
        assert node.things == []


def test_deadline_holds_although_nobody_else_keeps_it(node: Node) -> None:
    node.patch.setattr(worker, "BUILDER_GRACE_S", 0.1)
    node.reached(build, "wait_ready")  # or not: a busy machine is late before
    error = node.ask(deadline=Deadline.after(worker.BUILDER_LATE_S + 2.0)).answer()["error"]
    assert error["what"] == "the guests of start 7.head.1 were not made in time"
    assert " s had passed at " in error["why"]
    assert node.things == []


def test_worker_that_is_told_to_end_takes_its_guests_with_it(node: Node) -> None:
    client.request_guests(node.part(), node.settings, node.soon())
    pid = node.worker
    os.kill(pid, signal.SIGTERM)
    node.wait_for_the_end_of(pid)
    assert node.things == []
    assert over(node)


def test_worker_that_hears_nothing_is_ended(node: Node) -> None:
    client.request_guests(node.part(), node.settings, node.soon())
    pid = node.worker
    os.kill(pid, signal.SIGSTOP)
    assert present_absent.absent("7.head", 1, node.settings, Deadline.after(6.0)) == (
        "domain vcn1-1", "directory 7.head.1", "slot 1",
    )  # fmt: skip
    assert node.things == []
    node.wait_for_the_end_of(pid)


def test_lock_that_a_stranger_holds_is_waited_for_and_he_is_not_ended(node: Node) -> None:
    """The file names a process that never had it open."""
    lock = start_lock.Lock(node.lock)
    assert lock.take_now()
    lock.sign(process_id.ProcessId.of(os.getppid()))
    with pytest.raises(VTorqueError, match=f"process {os.getppid()} held it for too long"):
        present_absent.absent("7.head", 1, node.settings, Deadline.after(0.3))
    lock.close()


def test_lock_is_free_again_and_tells_whether_it_is_held(node: Node) -> None:
    path = start_lock.start_lock(node.settings, "1.head.1")
    assert not start_lock.is_locked(path)
    with start_lock.lock_alone(path, node.settings, node.soon()):
        assert start_lock.is_locked(path)
    assert not start_lock.is_locked(path)


def test_lock_that_was_taken_away_while_it_was_waited_for_is_nobodys(node: Node) -> None:
    """Its holder took the guests away, and its file with them: another may hold a new one."""
    lock = start_lock.Lock(node.lock)
    assert lock.take_now()
    mark, real = node.settings.pool.parent / "waits", start_lock.Lock.take

    def take(waiting: start_lock.Lock, *arguments: t.Any, **how: t.Any) -> None:
        mark.touch()
        real(waiting, *arguments, **how)

    node.patch.setattr(start_lock.Lock, "take", take)
    asked = node.ask()
    node.wait_for_file(mark)
    node.lock.unlink()
    fcntl.flock(lock._fd, fcntl.LOCK_UN)  # who asks was forked from us, and has it open too
    lock.close()
    assert asked.answer()["error"]["why"] == "its guests are being taken away"
    assert node.things == []


def test_worker_whose_lock_was_taken_away_does_not_stay(node: Node) -> None:
    """Between the lock that it holds alone and the one that it shares another may have come in."""

    def wait(*arguments: t.Any, **how: t.Any) -> dict[str, str]:
        node.lock.unlink()
        return node.wait(*arguments, **how)

    node.patch.setattr(build, "wait_ready", wait)
    with pytest.raises(VTorqueError, match="is over"):
        client.request_guests(node.part(), node.settings, node.soon())
    node.absent()
    assert node.things == []


def test_guests_of_a_start_that_is_over_are_no_answer(node: Node) -> None:
    """Although they were ready when its word came."""
    real = start_lock.Lock.take

    def take(sharing: start_lock.Lock, *arguments: t.Any, **how: t.Any) -> None:
        real(sharing, *arguments, **how)
        start_lock.bury(node.settings, "7.head.1")

    node.patch.setattr(start_lock.Lock, "take", take)
    with pytest.raises(VTorqueError, match="is over"):
        client.request_guests(node.part(), node.settings, node.soon())
    assert node.things == []


def shares(node: Node) -> bool:
    """May another look at the guests of the start?"""
    lock = start_lock.Lock(node.lock)
    try:
        lock.take(node.settings, Deadline.after(0.0), shared=True)
    except start_lock.LockTimeout:
        return False
    finally:
        lock.close()
    return True


def test_lock_is_held_alone_while_guests_are_made(node: Node) -> None:
    wait = node.reached(build, "wait_ready")
    asked = node.ask()
    wait()
    assert (start_lock.is_locked(node.lock), shares(node)) == (True, False)
    os.kill(asked.pid, signal.SIGTERM)
    asked.answer()


def test_lock_is_shared_while_guests_are_watched(node: Node) -> None:
    client.request_guests(node.part(), node.settings, node.soon())
    assert (start_lock.is_locked(node.lock), shares(node)) == (True, True)
