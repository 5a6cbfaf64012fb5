# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hypervisor offers, and whether KVM can be used."""

from __future__ import annotations

import os
import pathlib
import pwd

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.capabilities import (
    Capabilities,
    kvm_usable,
    read_qemu_ids,
    why_no_machine,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import (
    parse,
)

FIXTURES = pathlib.Path(__file__).parents[5] / "fixtures/libvirt"


@pytest.mark.parametrize(
    ("arch", "flags", "device", "offered", "message"),
    [
        ("x86_64", "fpu vmx sse", True, ("kvm", "qemu"), ""),
        ("x86_64", "fpu svm sse", True, ("kvm", "qemu"), ""),
        ("x86_64", "fpu sse", True, ("kvm", "qemu"), "neither vmx nor svm"),
        ("x86_64", "fpu vmxnet svm_lock", True, ("kvm", "qemu"), "neither vmx nor svm"),
        ("x86_64", "vmx", False, ("kvm", "qemu"), "is missing"),
        ("x86_64", "vmx", True, ("qemu",), "offers no kvm"),
        ("aarch64", "fp asimd", True, ("kvm",), ""),
    ],
)
def test_kvm_is_usable_only_when_processor_device_and_libvirt_agree(
    tmp_path: pathlib.Path, arch: str, flags: str, device: bool, offered: tuple[str, ...], message: str
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
    if device:
        (tmp_path / "kvm").touch()
    why = kvm_usable(arch, Capabilities({arch: offered}), cpuinfo=tmp_path / "cpuinfo", device=tmp_path / "kvm")
    assert (message in why) if message else (why == "")


@pytest.mark.parametrize(
    ("owner", "mode", "ids", "message"),
    [
        ((0, 105), 0o660, (64055, 105), ""),
        ((0, 105), 0o660, (0, 0), ""),
        ((64055, 0), 0o600, (64055, 105), ""),
        ((0, 0), 0o666, (64055, 105), ""),
        (
            (0, 0),
            0o600,
            (64055, 105),
            "(0:0, mode 0600) is closed to uid 64055, as which qemu runs: chgrp kvm, chmod 660",
        ),
        ((0, 105), 0o640, (64055, 105), "is closed to uid 64055"),
        ((0, 105), 0o606, (64055, 105), "is closed to uid 64055"),
        ((64055, 105), 0o066, (64055, 105), "is closed to uid 64055"),
    ],
)
def test_kvm_usable_of_a_device_that_qemus_user_cannot_open_names_owner_and_mode(
    tmp_path: pathlib.Path, owner: tuple[int, int], mode: int, ids: tuple[int, int], message: str
) -> None:
    (tmp_path / "cpuinfo").write_text("flags : svm\n")
    device = tmp_path / "kvm"
    device.touch()
    os.chown(device, *owner)
    device.chmod(mode)
    offered = Capabilities({"x86_64": ("kvm",)}, ids)
    why = kvm_usable("x86_64", offered, cpuinfo=tmp_path / "cpuinfo", device=device)
    assert (message in why) if message else (why == "")


def test_kvm_usable_by_the_group_of_qemus_own_entry(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian has it: the user libvirt-qemu is of the group kvm, and libvirt's label names another one."""
    (tmp_path / "cpuinfo").write_text("flags : svm\n")
    device = tmp_path / "kvm"
    device.touch()
    os.chown(device, 0, 107)
    device.chmod(0o660)
    entry = pwd.struct_passwd(("libvirt-qemu", "x", 64055, 107, "", "/", "/bin/false"))
    monkeypatch.setattr(pwd, "getpwuid", {64055: entry}.__getitem__)
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid])
    offered = Capabilities({"x86_64": ("kvm",)}, (64055, 64055))
    assert kvm_usable("x86_64", offered, cpuinfo=tmp_path / "cpuinfo", device=device) == ""


@pytest.mark.parametrize(
    ("labels", "ids"),
    [
        ("<model>dac</model><baselabel type='kvm'>+64055:+105</baselabel>", (64055, 105)),
        ("<model>selinux</model><baselabel type='kvm'>+1:+2</baselabel>", (0, 0)),
        ("<model>dac</model>", (0, 0)),
    ],
)
def test_ids_of_qemu_are_those_of_libvirts_label(labels: str, ids: tuple[int, int]) -> None:
    xml = f"<capabilities><host><secmodel>{labels}</secmodel></host></capabilities>"
    assert read_qemu_ids(parse(xml)) == ids


@pytest.mark.parametrize(
    ("machine", "node", "known"),
    [
        ("pc-q35-7.2", "9.0.0-qemu-7.2.22", True),
        ("pc-q35-7.2", "11.3.0-qemu-10.0.13", True),
        ("pc-q35-7.2", "12.9.0-qemu-11.1.3", True),
        ("pc-q35-10.0", "9.0.0-qemu-7.2.22", False),
        ("pc-q35-10.0", "12.9.0-qemu-11.1.3", True),
        ("pc-q35-11.1", "11.3.0-qemu-10.0.13", False),
        ("pc-q35-2.7", "12.9.0-qemu-11.1.3", False),
    ],
)
def test_guest_goes_on_where_qemu_knows_its_machine(machine: str, node: str, known: bool) -> None:
    """`virsh capabilities` of Debian 12, 13 and 13's backports: x86_64, without machines other than q35."""
    host = parse((FIXTURES / f"machines-{node}.xml").read_text())
    why = why_no_machine(parse(f"<domain><os><type arch='x86_64' machine='{machine}'/></os></domain>"), host, "cn2")
    assert why == ("" if known else f"the QEMU of cn2 does not know its machine {machine}: another release began it")


def test_machine_is_left_to_libvirt_where_nothing_is_known_of_it() -> None:
    host = parse((FIXTURES / "machines-9.0.0-qemu-7.2.22.xml").read_text())
    for xml in ("<domain/>", "<domain><os><type arch='aarch64' machine='virt-10.0'/></os></domain>"):
        assert why_no_machine(parse(xml), host, "cn2") == ""
