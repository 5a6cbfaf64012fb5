# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that shares a directory: whose it is, what it may, and that it is found and ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import stat
import tempfile
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import monitor, present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import leftovers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import virtiofsd
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage.serving import Serving
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import memory
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists.mounts import Mount
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import Group, Owner

KEY = "7.head.1"
OWNER = Owner("alice", 54321, 54322, "alice", "/home/alice", "/bin/sh", (Group("HPC Users", 54323), Group("root", 0)))
QEMU = (64055, 64055)


class Node:
    """A node with one guest and a home of the user's."""

    def __init__(self, place: pathlib.Path) -> None:
        self.settings = NodeSettings("cn1", 1, state_dir=place / "state", run_dir=place / "run")
        self.guest = self.settings.guests_dir / KEY / "vcn1-1"
        self.guest.mkdir(parents=True)
        write_guest_file(self.guest, GuestFile(0, 1, "vcn1-1", "52:54:00:00:01:01", "u", "f00d", OWNER.uid, "d"))
        self.home = place / "home, with a comma"
        self.home.mkdir(mode=0o700)
        os.chown(self.home, OWNER.uid, OWNER.gid)

    def start(self, **changes: t.Any) -> pathlib.Path:
        settings = changes.pop("settings", self.settings)
        directory = changes.pop("directory", str(self.home))
        return virtiofsd.start("vtorque0", directory, Serving(self.guest, OWNER, settings, QEMU, Deadline.after(60)))

    def processes(self) -> list[int]:
        return [pid for pid, key in leftovers.processes(self.settings) if key == KEY]

    @property
    def in_c(self) -> bool:
        return virtiofsd.program(self.settings)[1]

    def process(self) -> int:
        """The one that serves; the kernel shows the words of a program a moment after it has begun.

        The one in Rust is two: a parent that waits, and a child that is the first process of a namespace; for a moment
        another child writes down whose its ids are.
        """
        end = Deadline.after(60)
        while True:
            with contextlib.suppress(OSError):
                for pid in self.processes():
                    if self.in_c or len(status(pid)["NSpid"].split()) == 2:
                        return pid
            assert not end.passed


@pytest.fixture
def sharer() -> t.Iterator[Node]:
    # the ways to pytest's own are closed to others; to open them would change whatever they lead through, /tmp too
    with tempfile.TemporaryDirectory() as place:
        pathlib.Path(place).chmod(0o711)
        one = Node(pathlib.Path(place))
        yield one
        for pid in one.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def status(pid: int) -> dict[str, str]:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _colon, value in (line.partition(":") for line in lines)}


def test_it_is_the_users_with_his_groups_and_no_others(sharer: Node) -> None:
    sharer.start()
    pid = sharer.process()
    seen = status(pid)
    # prlimit(2) of another user namespace is refused
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines()
    limit_of = {" ".join(line.split()[1:3]): line.split()[3:5] for line in limits}
    assert limit_of["data size"] == [str(memory.SERVER_MIB << 20)] * 2
    assert limit_of["stack size"] == [str(memory.STACK_MIB << 20)] * 2
    assert set(seen["Uid"].split()) == {"54321"}
    assert set(seen["Gid"].split()) == {"54322"}
    assert os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user")
    assert pathlib.Path(f"/proc/{pid}/uid_map").read_text().split() == ["54321", "54321", "1"]
    others = ["54323", "54323", "1"] if sharer.in_c else []  # which count all the same where files are opened
    assert pathlib.Path(f"/proc/{pid}/gid_map").read_text().split() == ["54322", "54322", "1", *others]


def test_only_qemu_may_connect_and_then_it_serves(sharer: Node) -> None:
    path = sharer.start()
    facts = path.stat()
    assert (stat.S_IMODE(facts.st_mode), facts.st_uid, facts.st_gid) == (0o600, *QEMU)
    pid = sharer.process()
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(path))
        # a question of vhost-user: which features? (request 1, version 1, no payload)
        one.sendall(bytes([1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]))
        one.settimeout(60)
        # header and payload come by two writes; with a time limit the kernel does not wait for all (MSG_WAITALL)
        with one.makefile("rb") as answer:
            assert len(answer.read(20)) == 20
        assert status(pid)["Groups"].split() == ["54322", "54323"]
    # and ends with the connection, or is ended
    leftovers.end_processes(sharer.settings, KEY)
    assert sharer.processes() == []


def test_virtiofsd_that_outlives_its_guest_is_ended(sharer: Node) -> None:
    sharer.start()
    sharer.process()
    ended = leftovers.end_processes(sharer.settings, KEY)
    assert ended
    assert all(ended.values())
    assert sharer.processes() == []


def test_servers_of_one_guest_end_before_it_boots_instead_and_no_other_guest_s(sharer: Node) -> None:
    sharer.start()
    pid = sharer.process()
    leftovers.end_servers(sharer.guest.with_name(f"{sharer.guest.name}0"), sharer.settings)
    assert pid in sharer.processes()
    leftovers.end_servers(sharer.guest, sharer.settings)
    assert sharer.processes() == []


def test_directory_that_the_user_cannot_open_is_the_sites_fault(sharer: Node) -> None:
    os.chown(sharer.home, 0, 0)
    with pytest.raises(SiteFault, match="alice cannot open it: Permission denied"):
        sharer.start()
    assert sharer.processes() == []


def test_node_without_the_program_says_so(sharer: Node, tmp_path: pathlib.Path) -> None:
    settings = NodeSettings("cn1", 1, state_dir=sharer.settings.state_dir, virtiofsd=(tmp_path / "none",))
    with pytest.raises(NodeFault, match="is not installed") as fault:
        sharer.start(settings=settings)
    assert fault.value.cause == "programs"


def test_node_without_user_namespaces_says_so(sharer: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """No node goes offline for it: nobody could test whether it was mended."""
    monkeypatch.setattr(virtiofsd, "_NEWUSER", 1)
    monkeypatch.setattr(virtiofsd, "_known", lambda settings: (virtiofsd.program(settings)[0], True))
    with pytest.raises(NodeFault, match="namespace: Invalid argument") as fault:
        sharer.start()
    assert (fault.value.cause, fault.value.hint) == ("", "virtiofsd needs user namespaces here")
    assert sharer.processes() == []


def test_one_in_rust_is_started_as_a_plain_user(sharer: Node, tmp_path: pathlib.Path) -> None:
    """A stand-in that says it is: no namespace of ours, the words of its own command line."""
    output = sharer.home / "said"
    program = sharer.home.parent / "virtiofsd"
    program.write_text(
        "#!/bin/sh\n[ \"$1\" != --version ] || { echo virtiofsd 1.13.0; exit; }\n"
        f"{{ id -u; id -G; readlink /proc/self/ns/user; echo \"$@\"; }} >'{output}.new'\n"
        f"mv '{output}.new' '{output}'\n"
        "exec sleep 600\n"
    )  # fmt: skip
    program.chmod(0o755)
    sharer.start(settings=NodeSettings("cn1", 1, state_dir=sharer.settings.state_dir, virtiofsd=(program,)))
    end = Deadline.after(60)
    while not output.exists():
        assert not end.passed
    uid, groups, namespace, arguments = output.read_text().splitlines()
    assert (uid, groups) == ("54321", "54322 54323")
    assert namespace == os.readlink("/proc/self/ns/user")
    assert arguments == f"--fd=3 --shared-dir {sharer.home} --sandbox namespace --rlimit-nofile 0 --log-level error"


def test_virtiofsd_is_queried_once_for_each_program(sharer: Node) -> None:
    """And what is kept is root's word alone."""
    asked = sharer.home.parent / "asked"
    program = sharer.home.parent / "virtiofsd"

    def become(version: str) -> None:
        program.with_suffix(".new").write_text(
            f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' && echo x >>{asked}\n"
        )
        program.with_suffix(".new").chmod(0o755)
        program.with_suffix(".new").rename(program)

    become("virtiofsd 1.13.0")
    settings = dataclasses.replace(sharer.settings, virtiofsd=(program,))
    settings.run_dir.mkdir()
    for _again in range(2):
        assert virtiofsd._known(settings) == (program, False)
    assert asked.read_text() == "x\n"
    become("virtiofsd version 7.2.22")
    assert virtiofsd._known(settings) == (program, True)
    (settings.run_dir / "virtiofsd.json").chmod(0o666)
    assert virtiofsd._known(settings) == (program, True)
    assert asked.read_text() == "x\nx\nx\n"


def test_start_shares_what_its_guests_mount_and_takes_it_away(node: t.Any) -> None:
    """Each guest has a process, a socket in its domain, and the words to mount it; none is left afterwards."""
    shared = pathlib.Path(tempfile.mkdtemp(prefix="vtq", dir="/tmp"))
    shared.chmod(0o755)
    node.settings = dataclasses.replace(node.settings, mounts=(Mount("virtiofs", str(shared), "/workspace"),))
    try:
        node.present(node.part(2))
        for name, facts in node.hypervisor.running.items():
            socket_of = node.settings.start_dir("7.head", 1) / name / "vtorque0.sock"
            assert f"<source socket='{socket_of}'/>" in facts.xml
            assert "<access mode='shared'/>" in facts.xml
        assert {report.mounts for report in node.seeds} == {
            (Mount("virtiofs", "vtorque0", "/workspace", "nosuid,nodev"),)
        }  # fmt: skip
        end = Deadline.after(60)
        servers = 2 if virtiofsd.program(node.settings)[1] else 4
        while len(leftovers.processes(node.settings)) != servers:
            assert not end.passed
        removed = node.absent()
        # a parent takes its child with it, perhaps before that one gets a signal
        assert 2 <= len([thing for thing in removed if thing.startswith("process ")]) <= servers
        assert leftovers.processes(node.settings) == ()
    finally:
        leftovers.end_processes(node.settings, KEY)
        shared.rmdir()


def test_builder_forks_nothing_beside_libvirts_thread(node: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread has locked when another one forks stays locked in the child; Python 3.12 and later warn of it."""
    over = threading.Event()
    noted, fork, connect = node.settings.run_dir.parent / "forks", os.fork, node.hypervisor.connect

    def noted_fork() -> int:
        with noted.open("a") as stream:
            stream.write(f"{len(os.listdir('/proc/self/task'))}\n")
        return fork()

    def connect_with_thread(*uri: str, **how: t.Any) -> t.Any:
        threading.Thread(target=over.wait, daemon=True).start()
        return connect(*uri, **how)

    for room in (present_absent, monitor):
        monkeypatch.setattr(room, "Domains", connect_with_thread)
    with tempfile.TemporaryDirectory(prefix="vtq", dir="/tmp") as shared:
        pathlib.Path(shared).chmod(0o755)
        node.settings = dataclasses.replace(node.settings, mounts=(Mount("virtiofs", shared, "/workspace"),))
        monkeypatch.setattr(os, "fork", noted_fork)
        try:
            assert "guests" in node.ask(node.part(1)).answer()
            node.absent()
        finally:
            over.set()
            leftovers.end_processes(node.settings, KEY)
    # the caller's process and the worker's; then the builder's, the process that forks for it, and virtiofsd's
    forks = noted.read_text().split()
    assert len(forks) >= 4
    assert set(forks[1:]) == {"1"}


def test_one_in_rust_that_cannot_enter_its_sandbox_needs_namespaces() -> None:
    """As virtiofsd 1.13.2 of Debian 13 ends where a file of /proc is covered."""
    why = 'MountProc(Os { code: 1, kind: PermissionDenied, message: "Operation not permitted" })'
    assert "user namespaces" in virtiofsd.hint_of(f"ERROR virtiofsd] Error entering sandbox: {why}")
    assert virtiofsd.hint_of("") == ""


@pytest.mark.parametrize(
    ("message", "missed"),
    [
        ("qemu-system-x86_64: -chardev socket,id=chr-vu-fs0,path=/g/vtorque0.sock: Connection refused", True),
        ("qemu-system-x86_64: -device vhost-user-fs-pci: Failed to read msg header", True),
        ("Failed to connect to '/g/vtorque0.sock': No such file or directory", True),
        ("qemu-system-x86_64: Error loading uncompressed kernel without PVH ELF Note", False),
        ("qemu-system-x86_64: could not load kernel 'vmlinuz'", False),
    ],
)
def test_only_a_complaint_of_the_way_to_it_is_one_of_virtiofsd(message: str, missed: bool) -> None:
    assert virtiofsd.is_missed(message, pathlib.Path("/g/vtorque0.sock")) == missed
