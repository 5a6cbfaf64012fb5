# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this node's hypervisor offers, by libvirt's words and the kernel's."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import re
import typing as t
import xml.etree.ElementTree as ET

from ...frozen import frozen


@frozen
class Capabilities:
    """What this node's hypervisor offers.

    Attributes:
        domains: architecture -> kinds of domain (`kvm`, `qemu`, `test`).
        qemu_ids: uid and gid as which it runs guests.
    """

    domains: t.Mapping[str, tuple[str, ...]]
    qemu_ids: tuple[int, int] = (0, 0)


def read_capabilities(root: ET.Element) -> Capabilities:
    """Return what libvirt offers.

    Args:
        root: of `virsh capabilities`.
    """
    domains = {
        arch.get("name", ""): tuple(sorted({domain.get("type", "") for domain in arch.iterfind("domain")}))
        for arch in root.iterfind("guest/arch")
    }
    return Capabilities(domains, read_qemu_ids(root))


def read_qemu_ids(root: ET.Element) -> tuple[int, int]:
    """libvirt's label for the ids of a process is `+uid:+gid`; without one it changes none."""
    for model in root.iterfind("host/secmodel"):
        for label in model.iterfind("baselabel"):
            found = re.fullmatch(r"\+([0-9]+):\+([0-9]+)", (label.text or "").strip())
            if model.findtext("model") == "dac" and found:
                return int(found[1]), int(found[2])
    return 0, 0


def why_no_machine(domain: ET.Element, host: ET.Element, node: str) -> str:
    """Return why the QEMU of a node cannot go on with a guest of another node; "" when it knows its machine.

    A release of QEMU knows the machines of the releases of six years before it, and none that came later:
    `pc-q35-7.2` goes on with QEMU 10.0, `pc-q35-10.0` not with 7.2 (tried with Debian 12 and 13).

    Args:
        domain: of the guest, with its machine as libvirt resolved it.
        host: of `virsh capabilities` of the node.
        node: its name.
    """
    kind = domain.find("os/type")
    if kind is None:
        return ""
    arch, machine = kind.get("arch", ""), kind.get("machine", "")
    offered = (one for one in host.iterfind("guest/arch") if one.get("name") == arch)
    known = {name.text for one in offered for name in one.iter("machine")}
    if not known or machine in known:
        return ""
    return f"the QEMU of {node} does not know its machine {machine}: another release began it"


def kvm_usable(
    arch: str,
    offered: Capabilities,
    *,
    cpuinfo: pathlib.Path = pathlib.Path("/proc/cpuinfo"),
    device: pathlib.Path = pathlib.Path("/dev/kvm"),
) -> str:
    """Why KVM cannot be used for guests of this architecture; "" when it can.

    A `/dev/kvm` alone proves nothing: it may be there, and even make a virtual machine, and still not run an
    unmodified kernel.  The processor's flag decides, as in `virt-host-validate`.  Nor is a device enough that qemu's
    user cannot open: libvirt, which tries it as that user and looks at it as root, then asks qemu for its abilities
    again at every call, and jobs fail late.
    """
    if arch in ("x86_64", "i686"):
        flags = set(cpuinfo.read_text(encoding="ascii", errors="replace").split())
        if not flags & {"vmx", "svm"}:
            return "the processor shows neither vmx nor svm"
    if not device.exists():
        return f"{device} is missing: is the module kvm_intel or kvm_amd loaded?"
    if not _may_open(device, *offered.qemu_ids):
        facts = device.stat()
        as_found = f"{facts.st_uid}:{facts.st_gid}, mode {facts.st_mode & 0o7777:04o}"
        return f"{device} ({as_found}) is closed to uid {offered.qemu_ids[0]}, as which qemu runs: chgrp kvm, chmod 660"
    if "kvm" not in offered.domains.get(arch, ()):
        return f"libvirt offers no kvm for {arch}"
    return ""


def _may_open(device: pathlib.Path, uid: int, gid: int) -> bool:
    """Return whether this user may read and write a device, by its owner, group and mode."""
    facts = device.stat()
    if uid in (0, facts.st_uid):
        return uid == 0 or facts.st_mode & 0o600 == 0o600
    groups = {gid}
    with contextlib.suppress(KeyError):  # libvirt may run it as a number that is nobody's
        user = pwd.getpwuid(uid)
        # the group of the user's own entry, too, as libvirt has it (virGetGroupList): on Debian that one is kvm
        groups.update(os.getgrouplist(user.pw_name, user.pw_gid))
    wanted = 0o060 if facts.st_gid in groups else 0o006
    return facts.st_mode & wanted == wanted
