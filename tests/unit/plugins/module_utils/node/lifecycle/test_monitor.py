# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that are lost while their job runs are told of, and those that only seem so are not."""

from __future__ import annotations

import os
import pathlib
import signal
import stat
import typing as t

import inotify_simple
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import client, monitor
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import moves
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import cpus
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_message
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import LostRecord
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.moves import MovedGuest

if t.TYPE_CHECKING:
    from ..conftest import Node


@pytest.fixture
def running(node: Node) -> Node:
    """A node whose guest is ready, and watched."""
    node.patch.setattr(monitor, "FIRST_PAUSE_S", 0.05)
    node.patch.setattr(monitor, "LAST_PAUSE_S", 0.05)
    node.open_log()
    (node.run_directory / "ready.json").write_text("{}")
    client.request_guests(node.part(2), node.settings, node.soon())
    node.wait_for_words("watches the guests")
    return node


def test_guest_that_ends_is_told_of_with_the_reason_and_its_last_words(running: Node) -> None:
    watch = inotify_simple.INotify()
    watch.add_watch(str(running.run_directory / "ready.json"), inotify_simple.flags.ATTRIB)
    (running.hypervisor.place / "vcn1-2.xml").unlink()
    lost = LostRecord.from_dict(running.wait_for(running.run_directory / "lost.json"))
    assert (lost.guest, lost.node, lost.reason, lost.console) == (
        "vcn1-2", "cn1", "it was destroyed", "Linux version 6.1",
    )  # fmt: skip
    assert watch.read(timeout=60_000), "the job's shell watches ready.json"
    watch.close()
    running.wait_for_words("guest vcn1-2 is lost: it was destroyed")


def test_a_guest_that_is_paused_is_lost(running: Node) -> None:
    running.hypervisor.pause("vcn1-1")
    lost = running.wait_for(running.run_directory / "lost.json")
    assert lost["reason"] == "it was paused: an I/O error (no room left on the disk?)"


def test_guest_that_moves_to_another_node_is_not_lost(running: Node) -> None:
    """Its domain ends here by the order; another guest's end is a loss as before."""
    part = running.part(2)
    guest = running.settings.start_dir(part.job_id, part.start) / "vcn1-1"
    moves.order_move(guest, "cn3")
    running.hypervisor.pause("vcn1-1")
    (running.hypervisor.place / "vcn1-1.xml").unlink()
    row = MovedGuest("vcn1-1", "52:54:00:00:01:01", "cn1", "cn3", 1.0, 1.0)
    moves.note_moved(running.settings.record_dir(part.job_id, part.start), row, None)
    moves.end_move(guest)
    (running.hypervisor.place / "vcn1-2.xml").unlink()
    assert running.wait_for(running.run_directory / "lost.json")["guest"] == "vcn1-2"
    assert "vcn1-1 is lost" not in running.log.read_text()


def test_guest_that_ended_in_a_move_and_did_not_come_there_is_lost(running: Node) -> None:
    part = running.part(2)
    guest = running.settings.start_dir(part.job_id, part.start) / "vcn1-1"
    moves.order_move(guest, "cn3")
    (running.hypervisor.place / "vcn1-1.xml").unlink()
    moves.end_move(guest)
    lost = running.wait_for(running.run_directory / "lost.json")
    assert lost["guest"] == "vcn1-1"


def test_first_that_is_lost_is_the_one_that_is_told(running: Node) -> None:
    (running.hypervisor.place / "vcn1-2.xml").unlink()
    running.wait_for(running.run_directory / "lost.json")
    (running.hypervisor.place / "vcn1-1.xml").unlink()
    running.wait_for_words("guest vcn1-1 is lost")
    assert running.wait_for(running.run_directory / "lost.json")["guest"] == "vcn1-2"


def test_line_of_the_jobs_shell_is_in_the_log_once_and_cannot_pose(node: Node) -> None:
    """It is said by a user's process; who holds the FIFO open, or fills it, keeps the worker from nothing."""
    node.open_log()
    shell_message.offer(node.run_directory, 65534)
    shell_message.send_message(node.run_directory, "dropped: TMPDIR\n2026 forged\x1b[2J")
    client.request_guests(node.part(), node.settings, node.soon())
    node.wait_for_words("the job's shell: dropped: TMPDIR\n")
    with (node.run_directory / shell_message.NAME).open("r+b", buffering=0) as fifo:
        fifo.write(b"second\n" * 500)
        node.hypervisor.pause("vcn1-1")
        node.wait_for_words("guest vcn1-1 is lost")
    assert "forged" not in node.log.read_text()
    assert "second" not in node.log.read_text()


def test_end_of_the_start_is_no_loss(running: Node) -> None:
    assert "domain vcn1-1" in running.absent()
    assert not (running.run_directory / "lost.json").exists()


def test_without_a_run_directory_the_log_has_it(node: Node) -> None:
    """On a sister, where nobody has begun one before; the job's owner may read it."""
    client.request_guests(node.part(), node.settings, node.soon())
    node.wait_for_words("watches the guests")
    node.hypervisor.forget()
    node.wait_for_words("guest vcn1-1 is lost")
    assert stat.S_IMODE(node.log.stat().st_mode) & 0o007 == 0
    assert os.getxattr(node.log, "system.posix_acl_access")
    assert not (node.settings.run_dir / "jobs").exists()


def test_sister_tells_the_mother_superior_of_the_first_guest_that_is_lost(node: Node) -> None:
    """And nothing is written on her own node, whatever directory is there."""
    report = node.settings.run_dir / "told"
    # the first is there with all that it says, or not at all
    command = [
        "/bin/sh", "-c",
        f"cat >{report}.$$; if [ -e {report} ]; then cat {report}.$$ >>{report}; else mv {report}.$$ {report}; fi\n"
        """echo '{"ok":true}'""",
    ]  # fmt: skip
    node.open_log()
    client.request_guests(node.part(2), node.settings, node.soon(), tell=command)
    node.wait_for_words("watches the guests")
    (node.hypervisor.place / "vcn1-2.xml").unlink()
    assert node.wait_for(report) == {
        "version": 1, "do": "lost", "job_id": "7.head", "start": 1, "node": "cn1", "guest": "vcn1-2",
        "reason": "it was destroyed", "console": "Linux version 6.1",
    }  # fmt: skip
    (node.hypervisor.place / "vcn1-1.xml").unlink()
    node.wait_for_words("guest vcn1-1 is lost")
    assert len(report.read_text().splitlines()) == 1
    assert not (node.run_directory / "lost.json").exists()


def test_libvirt_that_is_lost_is_no_guest_that_is_lost(running: Node) -> None:
    running.hypervisor.dead = True
    running.wait_for_words("libvirt was lost (libvirt ended); its guests may live")
    running.hypervisor.dead = False
    # heard again: what happens from now on is known
    (running.hypervisor.place / "vcn1-1.xml").unlink()
    lost = running.wait_for(running.run_directory / "lost.json")
    assert lost["guest"] == "vcn1-1"
    assert "vcn1-2 is lost" not in running.log.read_text()


def test_what_ended_while_libvirt_was_away_is_seen_when_it_is_back(running: Node) -> None:
    running.hypervisor.dead = True
    running.wait_for_words("libvirt was lost")
    (running.hypervisor.place / "vcn1-1.xml").unlink()
    running.hypervisor.dead = False
    lost = running.wait_for(running.run_directory / "lost.json")
    assert lost["guest"] == "vcn1-1"
    assert lost["reason"] in ("libvirt no longer knows it", "it was destroyed")


def test_kernels_word_counts_when_libvirt_has_none(node: Node) -> None:
    """The guest's process ends while libvirt is away."""
    node.open_log()
    (node.run_directory / "ready.json").write_text("{}")
    node.patch.setattr(monitor, "FIRST_PAUSE_S", 3600.0)
    node.present()
    disk = node.settings.guests_dir / "7.head.1/vcn1-1/disk.qcow2"
    with node.qemu_that_libvirt_forgot(disk, disk) as process:
        client.request_guests(node.part(), node.settings, node.soon())
        node.wait_for_words("watches the guests")
        node.hypervisor.dead = True
        node.wait_for_words("libvirt was lost")
        assert not (node.run_directory / "lost.json").exists()
        process.kill()
    assert node.wait_for(node.run_directory / "lost.json")["reason"] == "its process ended"


def test_start_can_end_while_libvirt_is_away(running: Node) -> None:
    """Who ends it does without the worker what can be done."""
    running.hypervisor.dead = True
    running.wait_for_words("libvirt was lost")
    pid = running.worker
    os.kill(pid, signal.SIGTERM)
    running.wait_for_the_end_of(pid)
    assert "left to whoever cleans up" in running.log.read_text()
    running.hypervisor.dead = False
    assert "domain vcn1-1" in running.absent()
    assert running.things == []


@pytest.mark.parametrize(("before", "moved"), [((0,), True), ((1,), False), ((), True)])
def test_guests_move_to_the_cpuset_that_the_job_gets_after_its_hook(
    node: Node, tmp_path: pathlib.Path, before: tuple[int, ...], moved: bool
) -> None:
    """It is looked for until it is there; who is inside of it already stays."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"cgroup {tmp_path} cgroup rw,cpuset 0 0\n")
    node.patch.setattr(monitor, "CPUSETS_LOOK_S", 0.01)
    node.patch.setattr(cpus.of_groups, "__defaults__", (mounts,))
    node.open_log()
    client.request_guests(node.part(), node.settings, node.soon(), cores=before, cpusets=("slurm*/uid_*/job_7",))
    node.wait_for_words("watches the guests")
    pinned = node.hypervisor.place / "vcn1-1.pinned"
    assert not pinned.exists()
    group = tmp_path / "slurm_cn1/uid_1001/job_7"
    group.mkdir(parents=True)
    (group / "cpuset.new").write_text("1-2\n")
    (group / "cpuset.new").rename(group / "cpuset.cpus")
    if moved:
        node.wait_for_words("guests stay on the job's cores 1-2")
        assert pinned.read_text() == "1 2"
    else:
        node.absent()
        assert not pinned.exists()


def test_job_without_a_cpuset_keeps_its_guests_where_they_are(node: Node) -> None:
    node.patch.setattr(monitor, "CPUSETS_LOOK_S", 0.01)
    node.patch.setattr(monitor, "CPUSETS_S", 0.05)
    node.open_log()
    client.request_guests(node.part(), node.settings, node.soon(), cores=(0,), cpusets=("there/is/none",))
    node.wait_for_words("the job has no cpuset: its guests stay on cores 0")
