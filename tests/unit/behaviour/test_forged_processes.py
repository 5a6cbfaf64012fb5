# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What any user of a node can make a process look like is never taken for a guest's: real processes, as nobody.

In a mount namespace of their own they have any file open at any path, with any words; the kernel tells the path as it
is there.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import sweep
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import guest_processes, present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import leftovers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import qemu_user, start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import user_disk, virtiofsd
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import Owner

from ..plugins.module_utils.node.conftest import like_qemu

QUEUED, RUNNING, GUEST = "4712.head.1", "7.head.1", "vcn1-1"
NOBODY, QEMU_UID = 65534, 64055
OWNER = Owner("alice", 1001, 1001, "HPC Users", "/home/alice", "/bin/bash")
QEMU = "/usr/bin/qemu-system-x86_64"
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
MOUNT = 'mount -t tmpfs none "$1" && mkdir -p "$1/$2" && : >"$1/$2/$3" && exec 3<"$1/$2/$3" && '
POSE = """exec -a "$4" bash -c 'echo up; read -r _' "$1/$2/$3" """


@functools.cache
def may_make_namespaces() -> bool:
    """Where plain users may not, root makes one for them: who reads it sees the same."""
    return subprocess.run([*AS_NOBODY, "unshare", "-Urm", "true"], check=False, capture_output=True).returncode == 0


class Node:
    """A node, and users on it."""

    def __init__(self, place: pathlib.Path, ends: contextlib.ExitStack) -> None:
        self.place = place
        self.ends = ends
        self.settings = NodeSettings(
            "cn1", 1, state_dir=place / "state", run_dir=place / "run", libvirt_uri="test:///default",
            template_dir=None, bridge="vtq-no-bridge",
        )  # fmt: skip
        self.settings.guests_dir.mkdir(parents=True)
        self.settings.run_dir.mkdir()

    def guest(self, key: str, owner_uid: int = OWNER.uid) -> pathlib.Path:
        """The directory of a guest, as it is while it runs; its disk is given back."""
        directory = self.settings.guests_dir / key / GUEST
        directory.mkdir(parents=True)
        write_guest_file(directory, GuestFile(0, 1, GUEST, "52:54:00:00:01:01", "u", "f00d", owner_uid, "d"))
        (directory / "disk.qcow2").touch(mode=0o600)
        return directory / "disk.qcow2"

    def forge(self, key: str, file: str = "disk.qcow2", program: str = QEMU) -> int:
        """A process of nobody's, who has a file of this name open in a file system of his own."""
        arguments = ["x", str(self.settings.guests_dir), f"{key}/{GUEST}", file, program]
        if may_make_namespaces():
            command = [*AS_NOBODY, "unshare", "-Urm", "bash", "-c", MOUNT + POSE, *arguments]
        else:
            command = ["unshare", "-m", "bash", "-c", MOUNT + f'exec {" ".join(AS_NOBODY)} bash -c "$0" x "$@"', POSE]
            command += arguments[1:]
        return self.wait_for(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def qemu(self, key: str, opens: pathlib.Path, **how: t.Any) -> int:
        """A process that is a guest's, as far as can be seen."""
        process = like_qemu(self.place, self.settings.guests_dir / key / GUEST / "disk.qcow2", opens, **how)
        return self.end_later(process)

    def wait_for(self, process: subprocess.Popen[bytes]) -> int:
        assert process.stdout is not None
        self.end_later(process)
        assert process.stdout.readline() == b"up\n"
        return process.pid

    def end_later(self, process: subprocess.Popen[bytes]) -> int:
        self.ends.enter_context(process)
        self.ends.callback(process.kill)
        return process.pid

    def processes(self) -> tuple[tuple[int, str], ...]:
        return leftovers.processes(self.settings)

    def sweep(self) -> sweep.SweepReport:
        return sweep.sweep(
            self.settings, lambda _job, _start: False, lambda _job: False, Deadline.after(60.0), twice_s=0.0
        )


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Node]:
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as ends:
        pathlib.Path(place).chmod(0o755)  # the ways to pytest's own are closed to others
        monkeypatch.setattr(leftovers, "SYS_NET", pathlib.Path(place, "net"))
        yield Node(pathlib.Path(place), ends)


def as_words(name: str, key: str, what: str, settings: NodeSettings) -> str:
    """The first word of a process of ours that is a user's."""
    return f"{name}:{settings.guests_dir}/{key}/{GUEST}/{what}"


def test_a_path_in_a_users_own_mount_namespace_proves_nothing(node: Node) -> None:
    node.guest(RUNNING)
    for key in (QUEUED, RUNNING):
        node.forge(key)
        node.forge(key, "vtorque0.log", as_words(virtiofsd.NAME, key, "vtorque0", node.settings))
        node.forge(key, user_disk.LOG, as_words(user_disk.NAME, key, user_disk.DATA, node.settings))
    assert node.processes() == ()
    assert not any("process" in line for line in present_absent.describe_leftovers(node.settings))
    assert leftovers.end_processes(node.settings, RUNNING) == {}


def test_a_disk_that_is_open_as_a_path_alone_proves_nothing(node: Node) -> None:
    """A user who may not read a file may have it open like that, where they can pass its directories."""
    disk = node.guest(RUNNING)
    pose = "import os, sys; os.open(sys.argv[1], os.O_PATH); print('up', flush=True); sys.stdin.read()"
    node.wait_for(
        subprocess.Popen(
            [QEMU, "-I", "-c", pose, str(disk)], executable=os.path.realpath(sys.executable), user=NOBODY,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
    )  # fmt: skip
    assert node.processes() == ()


def test_a_start_that_has_not_happened_is_not_buried(node: Node) -> None:
    """Its key can be told before: the next start of a job that is queued."""
    node.forge(QUEUED)
    for _look in range(3):
        assert node.sweep() == sweep.SweepReport()
    assert not start_lock.tombstone(node.settings, QUEUED).exists()
    start_lock.refuse_if_over(node.settings, QUEUED)


def test_forged_starts_do_not_keep_a_real_one_from_being_taken_away(node: Node) -> None:
    for number in range(sweep.MASS + 1):
        node.forge(f"{number}.head.1")
    node.guest("9.head.1")
    swept = node.sweep()
    assert [output.key for output in swept.removed] == ["9.head.1"]
    assert swept.left == ()


def test_a_forged_process_is_no_guests_lifeline(node: Node) -> None:
    """Whoever has the lower number would be taken: its end would end the job."""
    disk = node.guest(RUNNING)
    forged = node.forge(RUNNING)
    real = node.qemu(RUNNING, disk)
    ((itself,),) = guest_processes.of_guests(disk.parent.parent, node.settings, OWNER).values()
    try:
        assert itself.process is not None
        report = pathlib.Path(f"/proc/self/fdinfo/{itself.process}").read_text()
        assert f"Pid:\t{real}\n" in report, f"not process {forged}"
    finally:
        itself.close()


def test_a_user_is_believed_of_his_own_starts_alone(node: Node) -> None:
    """A virtiofsd is the job's user: what else they do to it they do to their own job."""
    node.guest(RUNNING, NOBODY)
    mine = as_words(virtiofsd.NAME, RUNNING, "vtorque0", node.settings)
    process = node.forge(RUNNING, "vtorque0.log", mine)
    assert node.processes() == ((process, RUNNING),)
    node.forge(RUNNING)  # but no qemu is theirs
    assert node.processes() == ((process, RUNNING),)
    shutil.rmtree(node.settings.guests_dir / RUNNING)
    assert node.processes() == ()


def test_a_program_that_is_root_for_its_caller_is_no_qemu(node: Node) -> None:
    """It keeps their words and descriptors, as sudo does while it asks for a password."""
    node.qemu(RUNNING, node.guest(RUNNING), executable="/bin/sh")
    assert node.processes() == ()


def test_process_with_some_root_ids_is_not_taken_for_root(node: Node) -> None:
    node.qemu(RUNNING, node.guest(RUNNING), preexec_fn=lambda: os.setresuid(NOBODY, 0, 0))
    assert node.processes() == ()


@pytest.mark.parametrize("key", ["7.\x1b[2Jhead.1", "7.head.01", "7.head", "x", "7.a b.1", "7-a.head.1"])
def test_what_names_no_start_is_nobodys(node: Node, key: str) -> None:
    """Not even of root's."""
    node.qemu(key, node.guest(key))
    assert node.processes() == ()


def test_number_with_too_many_digits_is_none() -> None:
    assert not leftovers._is_key("7.head." + "1" * 5000)
    assert leftovers._is_key("72-1.head.12")


def test_descriptor_that_is_closed_meanwhile_hides_no_process(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    process = node.qemu(RUNNING, node.guest(RUNNING))
    real = pathlib.Path.readlink

    def readlink(path: pathlib.Path) -> pathlib.Path:
        if path.parent.name == "fd" and path.name != "3":
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(pathlib.Path, "readlink", readlink)
    assert node.processes() == ((process, RUNNING),)


@pytest.mark.parametrize("uid", [0, QEMU_UID])
def test_qemu_whose_directory_has_gone_is_found_and_ended(node: Node, uid: int) -> None:
    disk = node.guest(RUNNING)
    os.chown(disk, uid, uid)
    qemu_user.save_uid(uid, node.settings)
    process = node.qemu(RUNNING, disk, user=uid)
    shutil.rmtree(disk.parent.parent)
    assert node.processes() == ((process, RUNNING),)
    assert leftovers.end_processes(node.settings, RUNNING) == {process: True}
    assert node.processes() == ()


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process hears a signal, as one that waits in the kernel for a file system of the user's own."""
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_words: None)
    monkeypatch.setattr(leftovers, "KILLED_END_S", 0.2)


@pytest.mark.usefixtures("deaf")
def test_what_is_the_users_holds_up_no_removal(node: Node) -> None:
    start = node.guest(RUNNING, NOBODY).parent.parent
    arguments = as_words(virtiofsd.NAME, RUNNING, "vtorque0", node.settings)
    pids = [node.forge(RUNNING, "vtorque0.log", arguments) for _pose in range(3)]
    assert leftovers.end_processes(node.settings, RUNNING) == dict.fromkeys(pids, False)
    removed = present_absent.absent("7.head", 1, node.settings, Deadline.after(60.0))
    assert [one for one in removed if one.startswith("process ")] == [
        f"process {pid} of the user's, as soon as the kernel lets it end" for pid in pids
    ]
    assert not start.exists()
    assert node.processes() == ()


def test_users_many_processes_hide_no_qemu(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have more than root may have descriptors."""
    disk = node.guest(RUNNING, NOBODY)
    arguments = as_words(virtiofsd.NAME, RUNNING, "vtorque0", node.settings)
    node.forge(RUNNING, "vtorque0.log", arguments)
    qemu = node.qemu(RUNNING, disk)
    really, opened = os.pidfd_open, []

    def pidfd_open(pid: int) -> int:
        if opened:
            raise OSError(errno.EMFILE, "Too many open files")
        opened.append(pid)
        return really(pid)

    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    assert leftovers.end_processes(node.settings, RUNNING) == {qemu: True}


@pytest.mark.usefixtures("deaf")
def test_qemu_that_does_not_end_holds_it_up(node: Node) -> None:
    node.qemu(RUNNING, node.guest(RUNNING))
    with pytest.raises(NodeFault, match="did not end within"):
        leftovers.end_processes(node.settings, RUNNING)


def test_qemu_with_a_guests_disk_open_is_found_without_other_signs(node: Node) -> None:
    """A guest that is older than what is kept of qemu's user, or that was made while /run was full."""
    disk = node.guest(RUNNING)
    os.chown(disk, QEMU_UID, QEMU_UID)
    process = node.qemu(RUNNING, disk, user=QEMU_UID)
    assert node.processes() == ((process, RUNNING),)
    os.chown(disk, 0, 0)
    assert node.processes() == ()


def test_every_user_is_kept_as_whom_guests_were_run(node: Node) -> None:
    assert qemu_user.load_uids(node.settings) == {0}
    qemu_user.save_uid(0, node.settings)
    assert not (node.settings.run_dir / qemu_user.FILE).exists()
    for uid in (QEMU_UID, 107, QEMU_UID):
        qemu_user.save_uid(uid, node.settings)
    assert qemu_user.load_uids(node.settings) == {0, QEMU_UID, 107}


@pytest.mark.parametrize("text", ["", "[]", '{"uids": 7}', '{"uids": ["x"]}', '{"uids": [null]}'])
def test_remembered_ids_of_an_unknown_form_are_root_alone(node: Node, text: str) -> None:
    (node.settings.run_dir / qemu_user.FILE).write_text(text)
    assert qemu_user.load_uids(node.settings) == {0}


def test_remembered_ids_that_others_can_write_are_root_alone(node: Node) -> None:
    path = node.settings.run_dir / qemu_user.FILE
    path.write_text(json.dumps({"uids": [NOBODY]}))
    path.chmod(0o666)
    assert qemu_user.load_uids(node.settings) == {0}
    shutil.rmtree(node.settings.run_dir)
    qemu_user.save_uid(QEMU_UID, node.settings)  # it stops nothing
    assert qemu_user.load_uids(node.settings) == {0}


def test_words_of_a_remain_are_harmless_on_a_terminal() -> None:
    assert str(leftovers.Leftover("process", "7", "4712.\x1b[2J\nhead.1")) == "process 7 of 4712.?[2J?head.1"
