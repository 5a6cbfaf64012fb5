# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk of the user's is served by himself, to one guest at a time, and is what it says it is."""

from __future__ import annotations

import errno
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import user_image
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import leftovers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import user_disk
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage.serving import Serving
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import Owner

ALICE = Owner(user="alice", uid=4242, gid=4243, group="chem", home="/home/alice", shell="/bin/sh")
KEY = "7.head.1"


class Node:
    """A node with directories of guests, and a home of alice's that root's way into is no help for."""

    def __init__(self, place: pathlib.Path) -> None:
        self.settings = NodeSettings("n1", 1, state_dir=place / "state", run_dir=place / "run", own_images_mib=64)
        self.home = place / "home"
        self.home.mkdir()
        os.chown(self.home, ALICE.uid, ALICE.gid)
        self.guests = 0

    def disk(self, name: str = "data.qcow2", kind: str = "qcow2", size: str = "32M") -> pathlib.Path:
        path = self.home / name
        subprocess.run(["qemu-img", "create", "-q", "-f", kind, path, size], check=True, timeout=60)
        os.chown(path, ALICE.uid, ALICE.gid)
        path.chmod(0o600)
        return path

    def guest(self) -> pathlib.Path:
        self.guests += 1
        guest = self.settings.guests_dir / KEY / f"vn1-{self.guests}"
        guest.mkdir(parents=True)
        write_guest_file(guest, GuestFile(0, self.guests, guest.name, "52:54:00:00:01:01", "u", "f00d", ALICE.uid, "d"))
        return guest

    def serve(self, path: pathlib.Path, **changes: t.Any) -> pathlib.Path:
        guest = self.guest()
        settings = self.settings if not changes else NodeSettings("n1", 1, **changes)
        return user_disk.serve(str(path), Serving(guest, ALICE, settings, (0, 0), Deadline.after(60)))

    def serve_image(self, path: pathlib.Path, digest: str = "") -> tuple[pathlib.Path, int]:
        guest = self.guest()
        return user_disk.serve_image(
            str(path), digest, Serving(guest, ALICE, self.settings, (0, 0), Deadline.after(60))
        )

    @property
    def servers(self) -> list[int]:
        return [pid for pid, key in leftovers.processes(self.settings) if key == KEY]


@pytest.fixture
def node() -> t.Iterator[Node]:
    with tempfile.TemporaryDirectory() as place:  # the ways to pytest's own are closed to others
        pathlib.Path(place).chmod(0o755)
        here = Node(pathlib.Path(place))
        yield here
        leftovers.end_processes(here.settings, KEY)


def size_at(place: pathlib.Path) -> str:
    """What a client is told, who then goes away."""
    uri = f"nbd+unix:///?socket={place}"
    return subprocess.run(["qemu-img", "info", uri], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("kind", ["qcow2", "raw"])
def test_a_disk_is_served_by_the_user_to_qemu_alone(node: Node, kind: str) -> None:
    place = node.serve(node.disk(kind=kind))
    (pid,) = node.servers
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    assert f"Uid:\t{ALICE.uid}\t{ALICE.uid}\t{ALICE.uid}\t{ALICE.uid}\n" in status
    assert f"Groups:\t{ALICE.gid} \n" in status
    assert (place.stat().st_mode & 0o777, place.stat().st_uid) == (0o600, 0)
    handle = os.pidfd_open(pid)
    assert "virtual size: 32 MiB" in size_at(place)
    assert select.select([handle], [], [], 60)[0]  # with its only client it goes
    os.close(handle)
    assert node.servers == []


def test_one_at_a_time_has_a_disk_and_a_death_lets_go_of_it(node: Node) -> None:
    disk = node.disk()
    node.serve(disk)
    (pid,) = node.servers
    with pytest.raises(UserFault, match="is in use, by another job or by a program of yours"):
        node.serve(disk)
    assert node.servers == [pid]
    assert leftovers.end_processes(node.settings, KEY) == {pid: True}
    node.serve(disk)
    assert len(node.servers) == 1


def test_path_that_is_too_long_for_a_socket_is_told(node: Node) -> None:
    disk = node.disk()
    guest = node.settings.guests_dir / ("7." + "h" * 100) / "vn1-1"
    guest.mkdir(parents=True)
    with pytest.raises(SiteFault, match="its path is longer than 107 bytes"):
        user_disk.serve(str(disk), Serving(guest, ALICE, node.settings, (0, 0), Deadline.after(60)))
    assert node.servers == []


def test_roots_rights_open_nothing(node: Node) -> None:
    disk = node.disk()
    os.chown(disk, 0, 0)
    (node.home / "link").symlink_to(disk)
    for path in (disk, node.home / "link"):
        with pytest.raises(UserFault, match="cannot be opened to read and write: Permission denied"):
            node.serve(path)
    with pytest.raises(UserFault, match="No such file"):
        node.serve(node.home / "gone")
    assert node.servers == []


@pytest.mark.parametrize(
    ("number", "fault"),
    [(errno.EIO, SiteFault), (errno.ESTALE, SiteFault), (errno.ETIMEDOUT, SiteFault), (errno.EROFS, UserFault)],
)
def test_a_file_server_that_fails_is_no_fault_of_the_users(
    node: Node, monkeypatch: pytest.MonkeyPatch, number: int, fault: type
) -> None:
    def fails(*_words: object) -> t.NoReturn:
        raise OSError(number, os.strerror(number))

    disk = node.disk()
    monkeypatch.setattr(user_disk, "read_header", fails)
    with pytest.raises(fault, match=f"cannot be opened to read and write: {os.strerror(number)}"):
        node.serve(disk)
    assert node.servers == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-b", "/etc/shadow", "-F", "raw", "-u"], "other"),
        (["-o", "data_file=other.raw"], "other"),
        (["-o", "encrypt.format=aes,encrypt.key-secret=s", "--object", "secret,id=s,data=x"], "encrypted"),
    ],
)
def test_disk_with_a_backing_file_is_refused(node: Node, options: list[str], message: str) -> None:
    path = node.home / "bad.qcow2"
    command = ["qemu-img", "create", "-q", "-f", "qcow2", *options, path, "32M"]
    subprocess.run(command, check=True, cwd=node.home, timeout=60)
    os.chown(path, ALICE.uid, ALICE.gid)
    with pytest.raises(UserFault, match="vmgr disk create makes one") as caught:
        node.serve(path)
    assert message in caught.value.why


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"x" * 512, "is smaller than 16 MiB"),
        (b"x" * 513, "no whole sectors"),
        (b"KDMV" + bytes(508), "VMDK"),
        (b"QFI\xfb" + b"\xff" * 508, ""),
    ],
)
def test_garbage_is_refused(node: Node, content: bytes, message: str) -> None:
    path = node.home / "garbage"
    path.write_bytes(content)
    os.chown(path, ALICE.uid, ALICE.gid)
    with pytest.raises(UserFault) as caught:
        node.serve(path)
    assert message in caught.value.why


def test_disk_that_is_no_file_is_refused_at_once(node: Node) -> None:
    os.mkfifo(node.home / "fifo", 0o666)
    os.chown(node.home / "fifo", ALICE.uid, ALICE.gid)
    for path in (node.home / "fifo", pathlib.Path("/dev/null")):
        with pytest.raises(UserFault, match="is not a file"):
            node.serve(path)
    with pytest.raises(UserFault, match="Is a directory"):
        node.serve(node.home)


def test_node_without_the_program_is_the_nodes_fault(node: Node, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NodeFault, match="is not installed"):
        node.serve(node.disk(), qemu_nbd=tmp_path / "gone")


def test_file_server_that_is_away_is_the_sites_fault(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(_path: str) -> t.NoReturn:
        while True:
            signal.pause()

    monkeypatch.setattr(user_disk, "inspect_disk", hangs)
    monkeypatch.setattr(user_disk, "DISK_SERVER_START_S", 0.2)
    with pytest.raises(SiteFault, match="alice waits for it in vain"):
        node.serve(node.disk())


def test_socket_is_closed_when_nobody_serves(node: Node) -> None:
    """qemu is not left to wait."""
    with pytest.raises(UserFault):
        node.serve(node.home / "gone")
    place = node.settings.guests_dir / KEY / "vn1-1" / "data.sock"
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(place))


def first_bytes(place: pathlib.Path, count: int = 512) -> bytes:
    """What a client reads, who then goes away."""
    command = ["qemu-img", "dd", "-f", "raw", "-O", "raw", f"bs={count}", "count=1", f"if=nbd+unix:///?socket={place}"]
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run([*command, f"of={copy.name}"], check=True, timeout=60)
        return pathlib.Path(copy.name).read_bytes()


def test_image_is_served_to_several_guests_and_written_by_none(node: Node) -> None:
    image = node.disk("own.qcow2")
    before = image.read_bytes(), image.stat()
    digest = user_image.inspect_image(str(image), 64).digest
    served = [node.serve_image(image, digest) for _guest in range(2)]
    assert [size for _place, size in served] == [32 << 20] * 2
    assert len(node.servers) == 2
    for pid in node.servers:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        assert f"Uid:\t{ALICE.uid}\t{ALICE.uid}\t{ALICE.uid}\t{ALICE.uid}\n" in status
    uri = f"nbd+unix:///?socket={served[0][0]}"
    written = subprocess.run(
        ["qemu-io", "-f", "raw", "-c", "write 0 512", uri], capture_output=True, text=True, check=False, timeout=60
    )
    assert "Permission denied" in written.stderr  # the server says so, whatever a client wants
    after = image.stat()
    assert (image.read_bytes(), after.st_mtime_ns, after.st_ctime_ns) == (
        before[0], before[1].st_mtime_ns, before[1].st_ctime_ns,
    )  # fmt: skip


def test_image_that_is_another_by_now_is_not_served(node: Node) -> None:
    with pytest.raises(UserFault, match="was changed after the job was submitted"):
        node.serve_image(node.disk("own.qcow2"), "0" * 64)
    assert node.servers == []


def test_roots_rights_open_no_image(node: Node) -> None:
    image = node.disk("bobs.qcow2")
    os.chown(image, 4300, 4300)
    (node.home / "link").symlink_to(image)
    for path in (image, node.home / "link", pathlib.Path("/etc/shadow")):
        with pytest.raises(UserFault, match="cannot be read: Permission denied"):
            node.serve_image(path)
    assert node.servers == []


def test_a_backing_file_that_comes_after_the_look_is_not_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user may swap the file at any time, and qemu-nbd reads its header anew."""
    image = node.disk("own.qcow2")
    found = user_image.inspect_image(str(image), 64)
    monkeypatch.setattr(user_image, "inspect_image", lambda _path, _most: found)
    below = node.home / "below"
    below.write_bytes(b"of the host".ljust(32 << 20, b"\0"))
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", below, "-F", "raw", image, "32M"]
    subprocess.run(command, check=True, timeout=60)
    place, _size = node.serve_image(image)
    assert first_bytes(place) == bytes(512)


def test_image_that_somebody_writes_to_is_not_served(node: Node) -> None:
    image = node.disk("own.qcow2")
    node.serve(image)
    with pytest.raises(UserFault, match="is in use") as caught:
        node.serve_image(image)
    assert caught.value.hint == "nothing may write to it while jobs read it"


def test_program_that_cannot_be_started_is_the_nodes_fault(node: Node, tmp_path: pathlib.Path) -> None:
    """Also after it was told what the disk is."""
    program = tmp_path / "qemu-nbd"
    program.write_text("no program")
    with pytest.raises(NodeFault, match="qemu-nbd could not be started"):
        node.serve(node.disk(), qemu_nbd=program, state_dir=node.settings.state_dir)
