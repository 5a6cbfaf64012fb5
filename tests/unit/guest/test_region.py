# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's program that gives shared memory to the job's user, over a sysfs of its own."""

from __future__ import annotations

import pathlib
import shutil
import stat
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A guest with two devices, of which the second is the memory."""
    for name in ("bin", "dev", "etc/vtorque", "sys/bus/pci/devices"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tmp_path / "bin/busybox")
    for name in ("sh", "cat", "readlink", "chown", "chmod", "ln"):
        (tmp_path / "bin" / name).symlink_to("busybox")
    (tmp_path / "etc/vtorque/guest.env").write_text("VTORQUE_UID=5000 VTORQUE_GID=5001\n")
    for address, vendor, device in (("0000:00:01.0", "0x1af4", "0x1041"), ("0000:02:01.0", "0x1af4", "0x1110")):
        place = tmp_path / f"sys/devices/pci0000:00/{address}"
        place.mkdir(parents=True)
        for name, text in (("vendor", vendor), ("device", device), ("enable", "0"), ("resource2", "")):
            (place / name).write_text(f"{text}\n")
            (place / name).chmod(0o600)
        (tmp_path / f"sys/bus/pci/devices/{address}").symlink_to(f"../../../devices/pci0000:00/{address}")
    shutil.copy(templates.COLLECTION_DIR / "guest/region.sh", tmp_path / "region")
    return tmp_path


def run(root: pathlib.Path) -> tuple[int, str]:
    done = subprocess.run(["chroot", root, "/bin/sh", "/region"], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr.strip()


def test_memory_becomes_the_users_and_nobody_elses(root: pathlib.Path) -> None:
    assert run(root) == (0, "")
    device = root / "sys/devices/pci0000:00/0000:02:01.0"
    facts = (device / "resource2").stat()
    assert (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)) == (5000, 5001, 0o600)
    assert (device / "enable").read_text() == "1\n"
    assert str((root / "dev/vtorque-shm").readlink()) == "/sys/devices/pci0000:00/0000:02:01.0/resource2"
    assert (root / "sys/devices/pci0000:00/0000:00:01.0/resource2").stat().st_uid == 0
    assert run(root) == (0, ""), "it may be run again"


def test_kernel_that_maps_no_device_is_named(root: pathlib.Path) -> None:
    lockdown = root / "sys/kernel/security/lockdown"
    lockdown.parent.mkdir(parents=True)
    lockdown.write_text("[none] integrity confidentiality\n")
    assert run(root) == (0, "")
    lockdown.write_text("none [integrity] confidentiality\n")
    assert run(root) == (1, "the kernel is locked down, as after a secure boot, and maps no memory of devices")


def test_device_that_is_missing_is_named(root: pathlib.Path) -> None:
    (root / "sys/devices/pci0000:00/0000:02:01.0/resource2").unlink()
    assert run(root) == (1, "this kernel gives no program the memory of devices")
    (root / "sys/devices/pci0000:00/0000:02:01.0/device").write_text("0x1041\n")
    assert run(root) == (1, "the device has not come to the guest")
