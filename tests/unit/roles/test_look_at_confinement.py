# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lets guests out of their confinement, by files as kernels and sites have them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

PROGRAM = COLLECTION_DIR.parent / "roles/compute_node/files/look_at_confinement.py"
APPARMOR = {"sys/module/apparmor/parameters/enabled": "Y\n"}
SELINUX = {"sys/fs/selinux/enforce": "1"}


def look(root: pathlib.Path, files: dict[str, str], qemu_conf: str, pool: str = "/opt/vm-images") -> dict[str, t.Any]:
    for name, text in {**files, "etc/libvirt/qemu.conf": qemu_conf}.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    command = [sys.executable, "-I", PROGRAM, pool, "--root", root]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


@pytest.mark.parametrize(
    ("files", "kernel"),
    [
        ({}, []), (APPARMOR, ["apparmor"]), (SELINUX, ["selinux"]),
        ({"sys/fs/selinux/enforce": "0"}, []), ({"sys/module/apparmor/parameters/enabled": "N\n"}, []),
    ],
)  # fmt: skip
def test_kernel_says_what_it_has(tmp_path: pathlib.Path, files: dict[str, str], kernel: list[str]) -> None:
    assert look(tmp_path, files, "") == {"kernel": kernel, "faults": []}


@pytest.mark.parametrize(
    ("files", "qemu_conf", "message"),
    [
        (APPARMOR, 'security_driver = "none"\n', "security_driver says none, and the kernel has apparmor"),
        (SELINUX, 'security_driver = [\n  "dac",\n  "none"\n]\n', "security_driver says dac, none"),
        (SELINUX, "security_default_confined = 0", "security_default_confined is 0"),
        ({}, "  seccomp_sandbox = 0 # too slow\n", "seccomp_sandbox is 0"),
        ({}, 'user = "+0"\n', "user is root"),
        ({}, 'user = "root"\nseccomp_sandbox=0', "seccomp_sandbox is 0; user is root"),
    ],
)
def test_what_lets_guests_out_is_named(
    tmp_path: pathlib.Path, files: dict[str, str], qemu_conf: str, message: str
) -> None:
    (fault,) = look(tmp_path, files, qemu_conf)["faults"]
    assert fault.startswith("/etc/libvirt/qemu.conf lets guests out (")
    assert message in fault
    assert "compute_node_unconfined=true" in fault


@pytest.mark.parametrize(
    "qemu_conf",
    [
        '#security_driver = "none"\n#user = "root"\n',
        'security_driver = [ "selinux", "apparmor" ]\n',
        'security_driver = "apparmor"\nuser = "libvirt-qemu"\nseccomp_sandbox = 1\n',
    ],
)
def test_good_configuration_is_left_alone(tmp_path: pathlib.Path, qemu_conf: str) -> None:
    assert look(tmp_path, APPARMOR, qemu_conf)["faults"] == []


def test_kernel_without_confinement_misses_no_driver(tmp_path: pathlib.Path) -> None:
    assert look(tmp_path, {}, 'security_driver = "none"\n')["faults"] == []


@pytest.mark.parametrize("pool", ["/usr/local/lib/images", "/usr/share/images", "/etc"])
def test_pool_that_libvirt_gives_no_guest_is_refused(tmp_path: pathlib.Path, pool: str) -> None:
    (fault,) = look(tmp_path, APPARMOR, "", pool)["faults"]
    assert fault.startswith(f"{pool}: libvirt gives no guest under AppArmor a file there")


def test_without_apparmor_it_does_not_matter(tmp_path: pathlib.Path) -> None:
    assert look(tmp_path, SELINUX, "", "/usr/share/images")["faults"] == []
