# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's program that makes the job's user, run in a root directory of its own, which is all busybox."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

from ansible_collections.mikelangelo.vtorque.plugins.module_utils import templates

SETTINGS = """VTORQUE_USER=alice VTORQUE_UID=5000 VTORQUE_GID=6 VTORQUE_GROUP='HPC Users' VTORQUE_HOME=/home/alice
VTORQUE_SHELL=/bin/sh VTORQUE_TORQUE_HOME=/var/spool/torque
"""
RUN = """set -e
mount -t tmpfs tmpfs "$1/dev"
: >"$1/dev/vda"; chgrp 6 "$1/dev/vda"
: >"$1/dev/null"
chroot "$1" /bin/sh /identity
stat -c %g "$1/dev/vda" "$1/owned"
"""


def test_devices_of_a_group_whose_id_is_the_jobs_are_not_the_users(tmp_path: pathlib.Path) -> None:
    """The image's `disk` has the id 6, and on the node that is the job's group: /dev is a file system of its own."""
    for name in ("bin", "dev", "etc/vtorque", "proc"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tmp_path / "bin/busybox")
    for name in ("sh", "awk", "find", "chgrp", "chown", "chmod", "stat", "grep", "mkdir", "ln"):
        (tmp_path / "bin" / name).symlink_to("busybox")
    shutil.copy(templates.COLLECTION_DIR / "guest/identity.sh", tmp_path / "identity")
    (tmp_path / "etc/vtorque/guest.env").write_text(SETTINGS)
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (tmp_path / "etc/group").write_text("root:x:0:\ndisk:x:6:\n")
    (tmp_path / "owned").touch()
    os.chown(tmp_path / "owned", 0, 6)
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", RUN, "sh", tmp_path],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2:] == ["60999", "60999"]
    assert "HPC Users:x:6:" in (tmp_path / "etc/group").read_text().splitlines()
