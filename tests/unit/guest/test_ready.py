# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's program that says that all is ready, in a root directory of its own, which is all busybox."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

SETTINGS = """VTORQUE_TOKEN=token VTORQUE_NODE_ADDRESS=127.0.0.1 VTORQUE_SSHD=sshd.service
VTORQUE_NAME=v1-1 VTORQUE_FQDN=v1-1 VTORQUE_USER=alice VTORQUE_UID=5000 VTORQUE_GID=5000 VTORQUE_GROUP=alice
VTORQUE_HOME=/home/alice VTORQUE_MOUNTS=
"""
PROGRAMS = {
    "usr/lib/vtorque/identity": "", "usr/lib/vtorque/mounts": "",
    "usr/lib/vtorque/agent": "cat /proc/sys/kernel/panic 2>/dev/null; echo ready",
}  # fmt: skip
FILES = {
    "etc/vtorque/guest.env": SETTINGS, "etc/vtorque/groups": "", "etc/hosts": "",
    "etc/passwd": "root:x:0:0::/root:/bin/sh\nalice:x:5000:5000::/home/alice:/bin/sh\n",
    "etc/group": "root:x:0:\nalice:x:5000:\n",
    "proc/sys/kernel/printk": "7\t4\t1\t7\n", "proc/sys/kernel/panic": "0\n",
    "proc/net/tcp": "   0: 00000000:0016 00000000:0000 0A 00000000:00000000\n",
}  # fmt: skip


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A guest in which all is well."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("bin", "dev", "usr/lib/vtorque", "home/alice"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    os.chown(tmp_path / "home/alice", 5000, 5000)
    os.mknod(tmp_path / "dev/ttyS0", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod(tmp_path / "dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    shutil.copy("/bin/busybox", tmp_path / "bin/busybox")
    for name in ("sh", "cat", "grep", "id", "sed", "sort", "stat", "tr"):
        (tmp_path / "bin" / name).symlink_to("busybox")
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    shutil.copy(templates.COLLECTION_DIR / "guest/ready.sh", tmp_path / "ready")
    return tmp_path


def run(root: pathlib.Path, status: int = 0) -> list[str]:
    """What is said when all is ready; its network is a loopback of its own."""
    begin = 'ip link set lo up && exec chroot "$1" /bin/sh /ready'
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", begin, "sh", root], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout.splitlines()


def test_kernel_that_panics_under_the_job_restarts(root: pathlib.Path) -> None:
    """It would hang, and where the guest has no device for it nobody would be told; the restart ends the guest."""
    assert run(root) == ["1", "ready"]
    assert (root / "etc/hosts").read_text() == "127.0.0.1 v1-1\n"


def test_guest_that_cannot_share_memory_is_not_ready(root: pathlib.Path) -> None:
    program = root / "usr/lib/vtorque/region"
    program.write_text("#!/bin/sh\necho 'the device has not come' >&2\nexit 1\n")
    program.chmod(0o755)
    assert run(root, status=1) == []
    program.write_text("#!/bin/sh\nexit 0\n")
    assert run(root)[-1] == "ready"


def test_guest_whose_kernel_has_no_such_setting_is_ready_too(root: pathlib.Path) -> None:
    (root / "proc/sys/kernel/panic").unlink()
    (root / "proc/sys/kernel/panic").symlink_to("/not/there")
    assert run(root) == ["ready"]


@pytest.mark.parametrize(
    ("groups", "accounts", "wanted"),
    [
        (True, "root:x:0:\nalice:x:5000:\nchem:x:6000:alice\n", "6000\tchem\n"),
        (False, "root:x:0:\nalice:x:5000:\nadm:x:4:alice\n", ""),
        (False, "root:x:0:\nalice:x:5000:\n", "6000\tchem\n"),
        (False, "root:x:0:\nbob:x:5000:\n", ""),
        (True, "root:x:0:\nalice:x:5000:\n", "without adm\nrenamed docker g27\n"),
    ],
    ids=["given", "one more", "one less", "another name", "left out"],
)
def test_guest_whose_user_has_other_groups_than_given_is_not_ready(
    root: pathlib.Path, groups: bool, accounts: str, wanted: str
) -> None:
    (root / "etc/group").write_text(accounts)
    (root / "etc/vtorque/groups").write_text(wanted)
    assert (run(root, status=int(not groups))[-1:] == ["ready"]) is groups


def test_guest_whose_user_has_another_id_is_not_ready(root: pathlib.Path) -> None:
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:50:5000::/home/alice:/bin/sh\n")
    os.chown(root / "home/alice", 50, 5000)
    assert run(root, status=1) == []
