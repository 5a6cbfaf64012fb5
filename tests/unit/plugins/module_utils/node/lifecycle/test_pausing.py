# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of a suspended job stand still by an order on the node, and none of them is lost by that."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import clock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import client, monitor, pausing
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import pause_order
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import login_fifos, shell_link, shell_message
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

if t.TYPE_CHECKING:
    from ..conftest import Node

KEY = "7.head.1"


@pytest.fixture
def running(node: Node) -> Node:
    """A node whose two guests are ready, and watched."""
    node.patch.setattr(monitor, "FIRST_PAUSE_S", 0.05)
    node.patch.setattr(monitor, "LAST_PAUSE_S", 0.05)
    clocks = node.settings.run_dir / "clocks"
    node.patch.setattr(
        clock, "set_clocks", lambda _job, _start, _settings, names, _deadline: clocks.write_text(" ".join(names)) and ()
    )
    node.begin_watched(2)
    return node


def test_order_is_followed_and_taken_back_without_a_loss(running: Node) -> None:
    pause_order.order_pause(running.settings, KEY)
    running.wait_for_words("paused, as the job is suspended: vcn1-1, vcn1-2")
    assert running.states() == {"vcn1-1": "paused", "vcn1-2": "paused"}
    assert pause_order.take_back(running.settings, KEY)
    running.wait_for_words("gone on after")
    assert running.states() == {"vcn1-1": "running", "vcn1-2": "running"}
    running.wait_for_file(running.settings.run_dir / "clocks")
    running.hypervisor.pause("vcn1-2")
    running.wait_for_words("guest vcn1-2 is lost: it was paused: an I/O error")
    assert "vcn1-1 is lost" not in running.log.read_text()


def test_guest_takes_what_its_connection_has_written_before_it_stands_still(node: Node) -> None:
    """What is not acknowledged for a quarter of an hour ends the connection, and the job with it."""
    node.open_log()
    waits, asked = node.run_directory / "waits", node.run_directory / "asked"
    waits.touch()
    node.patch.setattr(pausing, "TAKEN_S", 60.0)
    node.patch.setattr(pausing, "unacknowledged_bytes", lambda _pids: asked.touch() or int(waits.exists()))
    node.patch.setattr(monitor, "FIRST_PAUSE_S", 0.05)
    (node.run_directory / "ready.json").write_text("{}")
    client.request_guests(node.part(), node.settings, node.soon())
    node.wait_for_words("watches the guests")
    pause_order.order_pause(node.settings, KEY)
    node.wait_for_file(asked)
    assert node.states() == {"vcn1-1": "running"}
    waits.unlink()
    node.wait_for_words("paused, as the job is suspended")
    assert node.states() == {"vcn1-1": "paused"}
    node.absent()


def test_libvirt_that_was_away_is_asked_when_it_is_back(running: Node) -> None:
    running.hypervisor.dead = True
    running.wait_for_words("libvirt was lost")
    pause_order.order_pause(running.settings, KEY)
    running.hypervisor.dead = False
    running.wait_for_words("paused, as the job is suspended")
    assert running.states() == {"vcn1-1": "paused", "vcn1-2": "paused"}


def test_libvirt_restarted_while_guests_stand_still_loses_none(running: Node) -> None:
    pause_order.order_pause(running.settings, KEY)
    running.wait_for_words("paused, as the job is suspended")
    running.hypervisor.dead = True
    running.wait_for_words("libvirt was lost")
    pause_order.take_back(running.settings, KEY)
    running.hypervisor.dead = False
    running.wait_for_words("gone on after")
    assert running.states() == {"vcn1-1": "running", "vcn1-2": "running"}
    assert "is lost:" not in running.log.read_text()


def test_start_that_ends_while_suspended_leaves_nothing(running: Node) -> None:
    pause_order.order_pause(running.settings, KEY)
    running.wait_for_words("paused, as the job is suspended")
    assert "domain vcn1-1" in running.absent()
    running.wait_for_words("gone on after")
    assert not running.hypervisor.running
    assert not pause_order.is_ordered(running.settings, KEY)


def test_ring_of_the_shell_has_the_server_asked_and_a_second_one_wakes_who_asks(node: Node) -> None:
    node.open_log()
    (node.run_directory / "ready.json").write_text("{}")
    shell_message.offer(node.run_directory, 65534)
    asked, woken = node.settings.run_dir / "asked", node.settings.run_dir / "woken"
    follow = ["/bin/sh", "-c", f"touch {asked}; dd bs=1 count=1 2>/dev/null; touch {woken}; exec cat"]
    node.patch.setattr(pausing, "QUIET_S", 0.01)
    client.request_guests(node.part(), node.settings, node.soon(), follow=follow)
    node.wait_for_words("watches the guests")
    assert not asked.exists()
    shell_message.notify_worker(node.run_directory)
    node.wait_for_file(asked)
    assert not woken.exists()
    shell_message.notify_worker(node.run_directory)
    node.wait_for_file(woken)
    node.absent()


SHELL = """
import os, pathlib, signal, sys
for name, uid in (("ssh", 1001), ("cat", 1001), ("ssh", 0)):
    if os.fork() == 0:
        pathlib.Path("/proc/self/comm").write_text(name)
        os.setresuid(uid, uid, uid)
        os.write(1, b"%d\\n" % os.getpid())
        signal.pause()
signal.pause()
"""
"""A job's shell with two connections, one of them root's, and another program."""


def test_connection_that_the_shell_itself_has_begun_is_stopped_meanwhile(running: Node) -> None:
    shell = subprocess.Popen([sys.executable, "-c", SHELL], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    children = [int(shell.stdout.readline()) for _child in range(3)]
    try:
        facts = [pathlib.Path(f"/proc/{pid}/status").read_text().split() for pid in children]
        kinds = {(one[1], one[one.index("Uid:") + 1]): pid for one, pid in zip(facts, children, strict=True)}

        def stopped() -> set[tuple[str, str]]:
            states = {kind: pathlib.Path(f"/proc/{pid}/stat").read_text() for kind, pid in kinds.items()}
            return {kind for kind, text in states.items() if text.rpartition(")")[2].split()[0] == "T"}

        shell_link.point(ProcessId.of(shell.pid), running.run_directory, running.settings.run_dir)
        pause_order.order_pause(running.settings, KEY)
        running.wait_for_words("paused, as the job is suspended")
        deadline = Deadline.after(60)
        while not stopped():  # a signal is taken when its process is scheduled
            assert not deadline.passed
        assert stopped() == {("ssh", "1001")}
        pause_order.take_back(running.settings, KEY)
        running.wait_for_words("gone on after")
        deadline = Deadline.after(60)
        while stopped():
            assert not deadline.passed
    finally:
        for pid in (*children, shell.pid):
            os.kill(pid, signal.SIGKILL)
        shell.wait()
        shell.stdout.close()


def reader(fifo: int, name: str) -> int:
    """A process of a user's of this name, whose standard input is the FIFO."""
    pid = os.fork()
    if pid == 0:
        pathlib.Path("/proc/self/comm").write_text(name)
        os.dup2(fifo, 0)
        os.setresuid(65534, 65534, 65534)
        while True:
            signal.pause()
    return pid


def test_connection_to_a_guest_that_stands_still_is_stopped(tmp_path: pathlib.Path) -> None:
    """It would be given up after a minute; whoever else reads there is left alone."""
    os.mkfifo(tmp_path / login_fifos.SAID)
    fifo = os.open(tmp_path / login_fifos.SAID, os.O_RDWR)
    ssh, other = reader(fifo, "ssh"), reader(fifo, "cat")
    try:
        deadline = Deadline.after(60)
        while not login_fifos.send(tmp_path, signal.SIGSTOP):  # it may not have its name yet
            assert not deadline.passed
        assert os.WIFSTOPPED(os.waitpid(ssh, os.WUNTRACED)[1])
        assert os.waitpid(other, os.WUNTRACED | os.WNOHANG) == (0, 0)
        assert login_fifos.send(tmp_path, signal.SIGCONT)
        assert os.WIFCONTINUED(os.waitpid(ssh, os.WCONTINUED)[1])
    finally:
        for pid in (ssh, other):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fifo)
    assert not login_fifos.send(tmp_path, signal.SIGCONT)


@pytest.fixture
def signals(node: Node) -> list[signal.Signals]:
    """What the connections of the job were sent."""
    sent: list[signal.Signals] = []
    node.patch.setattr(login_fifos, "send", lambda _directory, number: sent.append(signal.Signals(number)) or ())
    node.patch.setattr(clock, "set_clocks", lambda *_words: ())
    return sent


def pausing_of(node: Node) -> pausing.Pausing:
    words: list[object] = []
    return pausing.Pausing(
        node.part(), node.settings, ["vcn1-1"], lambda *text, **_more: words.append(text), node.run_directory
    )


@pytest.mark.parametrize("away", [False, True], ids=["libvirt answers", "libvirt is away"])
def test_connection_to_guests_that_have_moved_is_stopped_by_the_order_itself(
    node: Node, signals: list[signal.Signals], away: bool
) -> None:
    """They stand still on another node, and the job's connection begins on this one."""
    one = pausing_of(node)
    with contextlib.closing(one), node.hypervisor.connect("") as connection:
        domains: t.Any = None if away else connection
        one.follow(domains, ["vcn1-1"])
        assert signals == []
        pause_order.order_pause(node.settings, KEY)
        one.follow(domains, ["vcn1-1"])
        one.follow(domains, ["vcn1-1"])
        assert signals == [signal.SIGSTOP]
        pause_order.take_back(node.settings, KEY)
        one.follow(domains, ["vcn1-1"])
        one.follow(domains, ["vcn1-1"])
        assert signals == [signal.SIGSTOP, signal.SIGCONT]


def test_connection_that_is_stopped_goes_on_when_the_start_is_over(node: Node, signals: list[signal.Signals]) -> None:
    one = pausing_of(node)
    with contextlib.closing(one), node.hypervisor.connect("") as connection:
        pause_order.order_pause(node.settings, KEY)
        one.follow(t.cast("t.Any", connection), ["vcn1-1"])
        one.follow(t.cast("t.Any", connection), over=True)
        assert signals == [signal.SIGSTOP, signal.SIGCONT]


def test_connection_to_a_guest_here_is_stopped_once_and_goes_on_after_its_clock_is_set(
    node: Node, signals: list[signal.Signals]
) -> None:
    node.present()
    one = pausing_of(node)
    with contextlib.closing(one), node.hypervisor.connect("") as connection:
        domains = t.cast("t.Any", connection)
        pause_order.order_pause(node.settings, KEY)
        one.follow(domains)
        one.follow(domains)
        pause_order.take_back(node.settings, KEY)
        one.follow(domains)
        one.follow(domains)
        until = Deadline.after(60.0)
        while len(signals) < 2:
            assert not until.passed
        one.follow(domains)
        assert signals == [signal.SIGSTOP, signal.SIGCONT]


@pytest.mark.parametrize("rung", [shell_message.PARK, b"." + shell_message.CHECKPOINT + shell_message.PARK])
def test_follower_hands_on_that_a_job_is_to_leave_its_nodes(tmp_path: pathlib.Path, rung: bytes) -> None:
    shell_message.offer(tmp_path, os.getuid())
    out = tmp_path / "rung"
    follower = pausing.Follower(["/bin/sh", "-c", f"exec cat >{out}"], tmp_path, lambda _line: None)
    shell_message.notify_worker(tmp_path, rung)
    follower.handle_events(follower.filenos())
    until = Deadline.after(60.0)
    while not (out.exists() and out.read_bytes()):
        assert not until.passed
    follower.close()
    assert out.read_bytes() == shell_message.PARK


def test_follower_of_a_job_that_is_saved_by_itself_has_it_done_in_time_without_a_ring(tmp_path: pathlib.Path) -> None:
    shell_message.offer(tmp_path, os.getuid())
    out = tmp_path / "rung"
    follower = pausing.Follower(["/bin/sh", "-c", f"exec cat >{out}"], tmp_path, lambda _line: None, every_s=0.05)
    until = Deadline.after(60.0)
    while not (out.exists() and shell_message.CHECKPOINT in out.read_bytes()):
        assert not until.passed
        assert follower.due_s() < 1.0
        follower.handle_events(())
    follower.close()
    silent = pausing.Follower(["/bin/true"], tmp_path, lambda _line: None)
    assert silent.due_s() == float("inf")
    silent.close()
