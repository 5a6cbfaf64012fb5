# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk of the stock profile: a table of partitions, GRUB where a BIOS finds it, and the system as it is."""

from __future__ import annotations

import json
import pathlib
import shlex
import struct
import subprocess

import pytest
import yaml

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles/guest_image"
SECTOR, MIB = 512, 1 << 20
GRUB = "usr/lib/grub/i386-pc"


def shell(place: pathlib.Path, *steps: str) -> str:
    """Run functions of the profile on a system in `place`, as build_image.sh would."""
    arguments = {"here": ROLE / "files", "place": place, "root": place / "root"}
    given = [f"{name}={shlex.quote(str(value))}" for name, value in arguments.items()]
    script = "\n".join(["set -euo pipefail", "options=()", *given, f". {ROLE}/files/profile_stock.sh", *steps])
    return subprocess.run(["/bin/bash", "-c", script], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    """Of a system that has nothing but a file and GRUB's parts."""
    root = tmp_path / "root"
    (root / GRUB).mkdir(parents=True)
    (root / "boot/grub/i386-pc").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "etc/motd").write_text("as it was\n")
    # the real ones begin with code; what GRUB's own tools change lies at the same places
    (root / GRUB / "boot.img").write_bytes(b"B" * SECTOR)
    (root / "boot/grub/i386-pc/core.img").write_bytes(b"C" * 3 * SECTOR)
    made = tmp_path / "disk.raw"
    made.touch()
    with made.open("r+b") as file:
        file.truncate(256 * MIB)
    shell(tmp_path, "make_disk", 'echo "$part" >"$place/part"')
    return made


def test_partitions_lie_where_debian_puts_them(disk: pathlib.Path) -> None:
    """GRUB's core, then the root file system up to the last MiB, under the number that fstab and kernel are told."""
    table = json.loads(subprocess.run(["sfdisk", "--json", disk], check=True, capture_output=True).stdout)
    parts = {part["start"]: part for part in table["partitiontable"]["partitions"]}
    assert table["partitiontable"]["label"] == "gpt"
    assert sorted(parts) == [2048, 262144]
    assert parts[2048]["type"] == "21686148-6449-6E6F-744E-656564454649"
    assert parts[262144]["size"] * SECTOR == 256 * MIB - 129 * MIB
    assert parts[262144]["uuid"].lower() == (disk.parent / "part").read_text().strip()


def test_boot_sector_and_core_say_where_grub_goes_on(disk: pathlib.Path) -> None:
    """The two numbers that grub-bios-setup would write; the table of partitions behind the boot code is whole."""
    data = disk.read_bytes()[: 4096 * SECTOR]
    core = data[2048 * SECTOR :]
    assert struct.unpack_from("<Q", data, 0x5C) == (2048,)
    assert struct.unpack_from("<Q", core, SECTOR - 12) == (2049,)
    assert data[:0x5C] == b"B" * 0x5C
    assert data[0x64:440] == b"B" * (440 - 0x64)
    assert data[510:512] == b"\x55\xaa"
    assert (core[: SECTOR - 12], core[SECTOR - 4 : 3 * SECTOR]) == (b"C" * (SECTOR - 12), b"C" * (2 * SECTOR + 4))


def test_file_system_is_whole_and_fits_its_partition(disk: pathlib.Path) -> None:
    """One that is larger than its partition is mounted by no kernel; it has a journal, as Debian's."""
    alone = disk.with_name("root.raw")
    alone.write_bytes(disk.read_bytes()[262144 * SECTOR : 255 * MIB])
    subprocess.run(["e2fsck", "-fn", alone], check=True, capture_output=True)
    report = subprocess.run(["dumpe2fs", "-h", alone], check=True, capture_output=True, text=True).stdout
    assert "has_journal" in report
    read = subprocess.run(["debugfs", "-R", "cat /etc/motd", alone], check=True, capture_output=True, text=True)
    assert read.stdout == "as it was\n"


def test_initramfs_is_made_for_the_root_of_this_disk(tmp_path: pathlib.Path) -> None:
    """Its fstab is there before the packages are whose scripts make it."""
    hook, part = shell(tmp_path, "bootstrap_options", 'echo "${options[*]}"; echo "$part"').splitlines()
    (tmp_path / "root/etc").mkdir(parents=True)
    subprocess.run(["/bin/sh", "-c", hook.partition("=")[2], "hook", tmp_path / "root"], check=True)
    line = (tmp_path / "root/etc/fstab").read_text()
    assert line == f"PARTUUID={part} / ext4 rw,discard,errors=remount-ro,x-systemd.growfs 0 1\n"


def test_stock_brings_nothing_of_the_fast_profile() -> None:
    """No settings of cloud-init's, no init of ours, no units to mask; a kernel and a boot loader from packages."""
    known = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__guest_image_profiles"]
    assert known["stock"]["programs"] == ["profile_stock.sh"]
    assert known["stock"]["inputs"] == []
    assert {"linux-image-cloud-amd64", "grub-cloud-amd64", "cloud-init", "openssh-server"} <= set(
        known["stock"]["packages"]
    )
    assert {"90_vtorque.cfg", "initrd-init.sh"} <= set(known["fast"]["programs"])
