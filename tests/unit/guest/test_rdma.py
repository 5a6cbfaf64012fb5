# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's program that makes its RDMA device usable, with a kernel and tools that a test has in its hands."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

from .busybox_root import BusyboxRoot

CLASS, DEVICES = "sys/class/infiniband", "dev/infiniband"
APPLETS = ("cat", "grep", "ls", "chmod", "mkdir", "echo")
MAKES_RXE = f"""#!/bin/sh
echo "rdma $*" >>/asked
mkdir -p /{CLASS}/rxe0/ports/1 && echo '4: ACTIVE' >/{CLASS}/rxe0/ports/1/state
"""


class Guest(BusyboxRoot):
    """A guest that is to have a device of a kind."""

    def __init__(self, root: pathlib.Path, kind: str) -> None:
        super().__init__(root, ("etc/vtorque", "sys/class/net/ens3", CLASS, DEVICES), APPLETS)
        (root / "etc/vtorque/guest.env").write_text("VTORQUE_NODE_ADDRESS=10.0.0.1\n")
        (root / "etc/vtorque/rdma").write_text(f"{kind}\n")
        # busybox's own shell would run its own ip and modprobe, whatever else is there
        libraries = subprocess.run(["ldd", "/bin/dash"], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(", libraries):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])
        shutil.copy("/bin/dash", root / "bin/sh")
        self.program("modprobe", '#!/bin/sh\necho "modprobe $*" >>/asked\n')
        self.program("ip", '#!/bin/sh\necho "ip $*" >>/asked\necho "10.0.0.1 dev ens3 src 10.0.0.7 uid 0"\n')
        self.program("sleep", "#!/bin/sh\n")
        for name in ("rdma_cm", "uverbs0"):
            os.mknod(root / DEVICES / name, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        shutil.copy(templates.COLLECTION_DIR / "guest/rdma.sh", root / "program")

    def run(self) -> tuple[int, str]:
        line = ["chroot", self.root, "/bin/sh", "/program"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr.strip()

    def add_function(self, card: str = "ens9", state: str = "4: ACTIVE") -> None:
        """What the driver of a virtual function makes."""
        (self.root / CLASS / "mlx5_0/ports/1").mkdir(parents=True)
        (self.root / CLASS / "mlx5_0/ports/1/state").write_text(f"{state}\n")
        (self.root / CLASS / "mlx5_0/device/net" / card).mkdir(parents=True)


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> Guest:
    return Guest(tmp_path, "rxe")


def test_device_is_made_of_the_card_towards_the_node_and_is_everybodys(guest: Guest) -> None:
    guest.program("rdma", MAKES_RXE)
    assert guest.run() == (0, "")
    assert "rdma link add rxe0 type rxe netdev ens3" in guest.asked
    assert "modprobe -q rdma_ucm" in guest.asked
    modes = [stat.S_IMODE((guest.root / DEVICES / name).stat().st_mode) for name in ("rdma_cm", "uverbs0")]
    assert modes == [0o666, 0o666]
    assert guest.run() == (0, ""), "it may be run again"
    assert [line for line in guest.asked if line.startswith("rdma ")] == ["rdma link add rxe0 type rxe netdev ens3"]


def test_image_without_the_program_or_the_module_is_named(guest: Guest) -> None:
    assert guest.run() == (1, "the image lacks the program rdma (package iproute2)")
    guest.program("rdma", "#!/bin/sh\necho 'error: Operation not supported' >&2\nexit 1\n")
    status, arguments = guest.run()
    assert status == 1
    assert arguments.startswith("the kernel of the image makes no device of ens3, as without its module rdma_rxe: ")
    assert arguments.endswith("error: Operation not supported")


def test_port_that_stays_down_and_verbs_that_do_not_come_are_named(guest: Guest) -> None:
    guest.program("rdma", MAKES_RXE.replace("4: ACTIVE", "1: DOWN"))
    assert guest.run() == (1, "no port of an RDMA device is active")
    (guest.root / CLASS / "rxe0/ports/1/state").write_text("4: ACTIVE\n")
    (guest.root / DEVICES / "uverbs0").unlink()
    assert guest.run()[1].startswith("the kernel of the image gives programs no verbs")


def test_virtual_function_is_brought_up_and_no_other_device_is_made(tmp_path: pathlib.Path) -> None:
    guest = Guest(tmp_path, "sriov")
    guest.add_function()
    assert guest.run() == (0, "")
    assert [line for line in guest.asked if not line.startswith("modprobe")] == ["ip link set dev ens9 up"]


def test_virtual_function_without_a_driver_and_a_kind_of_nobody_are_named(tmp_path: pathlib.Path) -> None:
    guest = Guest(tmp_path, "sriov")
    assert guest.run() == (1, "the kernel of the image has no driver that makes an RDMA device of the card's function")
    (tmp_path / "etc/vtorque/rdma").write_text("other\n")
    assert guest.run() == (1, "the kind other is not known")
