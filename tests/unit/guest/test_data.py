# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's program that mounts a user's own disk, in a root directory of its own, with stand-ins for mounting."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

from .busybox_root import BusyboxRoot

APPLETS = ("grep", "head", "tr", "wc", "mkdir", "chown", "chmod", "stat", "sleep", "sync", "cat", "rm")
NOTE = '#!/bin/sh\necho "{} $*" >>/asked\n'
MOUNT = (
    NOTE.format("mount")
    + """
[ ! -e /refuses ] || { echo "mount: /data: wrong fs type" >&2; exit 32; }
echo "$3 $4 ext4 rw 0 0" >>/proc/mounts
"""
)
UMOUNT = (
    NOTE.format("umount")
    + """
[ ! -e /busy ] || { rm /busy; exit 32; }
[ ! -e /stuck ] || exit 32
echo >/proc/mounts
"""
)


class Guest(BusyboxRoot):
    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root, ("etc/vtorque", "proc/self", "sys/block/vda", "sys/block/vdc"), APPLETS)
        (root / "proc/mounts").write_text("proc /proc proc rw 0 0\n")
        (root / "sys/block/vda/serial").write_text("")
        (root / "sys/block/vdc/serial").write_text("vtorque-data")
        (root / "dev/vdc").write_bytes(bytes(2 << 20))
        (root / "etc/vtorque/guest.env").write_text("VTORQUE_UID=4242\nVTORQUE_GID=4243\n")
        # busybox's own shell would run its own umount, whatever else is there
        report = subprocess.run(["ldd", "/bin/dash"], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(", report):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])
        shutil.copy("/bin/dash", root / "bin/sh")
        self.program("mount", MOUNT)
        self.program("umount", UMOUNT)
        self.program("mkfs.ext4", NOTE.format("mkfs.ext4"))
        shutil.copy(templates.COLLECTION_DIR / "guest/data.sh", root / "program")

    def run(self, what: str) -> subprocess.CompletedProcess[str]:
        command = ["/usr/sbin/chroot", self.root, "/bin/sh", "/program", what]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> Guest:
    return Guest(tmp_path)


def test_new_disk_gets_a_file_system_that_is_the_users(guest: Guest) -> None:
    for _time in range(2):
        done = guest.run("mount")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert guest.asked == [
        "mkfs.ext4 -q -F -m 0 -L vtorque-data /dev/vdc", "mount -o nosuid,nodev /dev/vdc /data",
    ]  # fmt: skip
    facts = (guest.root / "data").stat()
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (4242, 4243, 0o700)


@pytest.mark.parametrize("place", [0, 1080, (1 << 20) - 1])
def test_disk_with_any_content_is_never_formatted(guest: Guest, place: int) -> None:
    with (guest.root / "dev/vdc").open("r+b") as stream:
        stream.seek(place)
        stream.write(b"x")
    assert guest.run("mount").returncode == 0
    assert guest.asked == ["mount -o nosuid,nodev /dev/vdc /data"]
    assert (guest.root / "data").stat().st_uid == 0  # as it comes from the disk


def test_disk_that_cannot_be_mounted_is_the_users_fault(guest: Guest) -> None:
    (guest.root / "dev/vdc").write_bytes(b"x")
    (guest.root / "refuses").touch()
    done = guest.run("mount")
    message = "what is on it cannot be mounted: mount: /data: wrong fs type"
    assert (done.returncode, done.stdout.splitlines()[-1]) == (90, message)


def test_image_that_can_make_no_file_system_says_so(guest: Guest) -> None:
    (guest.root / "bin/mkfs.ext4").unlink()
    done = guest.run("mount")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (90, "it is new, and this image has no mkfs.ext4")
    guest.program("mke2fs", NOTE.format("mke2fs") + '[ "$1" != -q ]\n')
    assert guest.run("mount").returncode == 0
    assert guest.asked[1] == "mke2fs -F -m 0 -L vtorque-data /dev/vdc"


def test_disk_that_has_not_come_is_nobodys_fault_yet(guest: Guest) -> None:
    (guest.root / "sys/block/vdc/serial").write_text("another")
    done = guest.run("mount")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "the disk has not come to the guest")


def test_mount_of_another_disk_is_not_taken_for_the_users(guest: Guest) -> None:
    (guest.root / "proc/mounts").write_text("fs:/data /data nfs rw 0 0\n")
    assert guest.run("unmount").returncode == 0
    assert guest.asked == []


def test_disk_in_use_is_unmounted(guest: Guest) -> None:
    guest.run("mount")
    (guest.root / "busy").touch()
    assert guest.run("unmount").returncode == 0
    assert guest.asked[2:] == ["umount /data", "umount /data"]
    assert guest.run("unmount").returncode == 0
    assert len(guest.asked) == 4


def test_disk_that_stays_in_use_is_made_read_only(guest: Guest) -> None:
    guest.run("mount")
    (guest.root / "bin/sleep").unlink()
    guest.program("sleep", "#!/bin/sh\n")
    (guest.root / "stuck").touch()
    assert guest.run("unmount").returncode == 0
    assert guest.asked[-1] == "mount -o remount,ro /data"
