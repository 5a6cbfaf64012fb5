# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's program that mounts, in a root directory of its own, with a stand-in for mount."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

from .busybox_root import BusyboxRoot

MOUNT = """#!/bin/sh
echo "$@" >>/asked
read -r up </proc/uptime && echo "$((up + 2))" >/proc/uptime
[ ! -e /refuses ] || { echo "mount: no such server" >&2; exit 32; }
"""
HOME = "nfs\tfs:/home/it's alice\t/home/it's alice\thard,nosuid,nodev\n"
WORKSPACE = "virtiofs\tvtorque1\t/workspace\tnosuid,nodev\n"


class Guest(BusyboxRoot):
    def __init__(self, root: pathlib.Path) -> None:
        applets = ("sh", "grep", "mkdir", "sleep", "timeout", "stat", "ln", "rmdir", "sed")
        super().__init__(root, ("etc/vtorque", "proc", "run"), applets)
        (root / "proc/uptime").write_text("5\n")
        self.program("mount", MOUNT)
        self.program("ping", "#!/bin/sh\necho 'PING fs (10.0.0.9): 56 data bytes'\n")
        shutil.copy(templates.COLLECTION_DIR / "guest/mounts.sh", root / "mounts")

    def run(self, mounts: str, *, uid: int = 0, seconds: int = 1) -> subprocess.CompletedProcess[str]:
        """The guest's root runs it; the home belongs to root here, as which it passes."""
        report = mounts.replace("'", "'\\''")
        (self.root / "etc/vtorque/guest.env").write_text(
            f"VTORQUE_MOUNTS='{report}'\nVTORQUE_MOUNT_SECONDS={seconds}\n"
            f'VTORQUE_UID={uid}\nVTORQUE_HOME="/home/it\'s alice"\n'
        )
        return subprocess.run(
            ["/usr/sbin/chroot", self.root, "/bin/sh", "/mounts"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> Guest:
    return Guest(tmp_path)


def test_everything_is_mounted_once_however_often_it_is_run(guest: Guest) -> None:
    for _time in range(2):
        done = guest.run(HOME + WORKSPACE)
        assert (done.returncode, done.stderr) == (0, "")
    assert guest.asked == [
        "-t nfs4 -o vers=4.2,hard,nosuid,nodev,addr=10.0.0.9 fs:/home/it's alice /home/it's alice",
        "-t virtiofs -o nosuid,nodev vtorque1 /workspace",
    ]
    assert (guest.root / "scratch").readlink() == pathlib.Path("/workspace")


def test_system_with_mount_nfs_finds_the_server_itself(guest: Guest) -> None:
    guest.program("mount.nfs", "#!/bin/sh\n")
    assert guest.run(HOME).returncode == 0
    assert guest.asked == ["-t nfs -o hard,nosuid,nodev fs:/home/it's alice /home/it's alice"]


def test_mount_that_is_late_is_reported_at_its_deadline(guest: Guest) -> None:
    """A try takes two of them here."""
    (guest.root / "refuses").touch()
    done = guest.run(HOME, seconds=3)
    assert done.returncode == 1
    assert done.stderr == "fs:/home/it's alice on /home/it's alice (nfs), tried for 3 s: mount: no such server\n"
    assert len(guest.asked) == 2


def test_home_of_somebody_else_is_refused(guest: Guest) -> None:
    done = guest.run(HOME, uid=1001)
    assert done.returncode == 1
    assert "belongs to 0, and not to 1001" in done.stderr


def test_9p_is_asked_for_as_qemu_speaks_it(guest: Guest) -> None:
    assert guest.run("9p\tvtorque0\t/data\tro,nosuid,nodev\n").returncode == 0
    assert guest.asked == ["-t 9p -o ro,nosuid,nodev,trans=virtio,version=9p2000.L vtorque0 /data"]
    assert not (guest.root / "scratch").exists()


def test_guest_without_mounts_does_nothing(guest: Guest) -> None:
    assert guest.run("").returncode == 0
    assert not (guest.root / "asked").exists()
