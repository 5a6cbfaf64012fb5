# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of the keys of `-vm`: how the value of each is read, and what it means."""

from __future__ import annotations

from ...frozen import frozen
from ...guest_kinds import DISTROS
from ...site_lists.guest_networks import NAME
from ...wire.messages import FS_TYPES, HUGEPAGES, IMAGE_NAME, NUMA
from .value_types import (
    Kind,
    boolean,
    choice,
    duration_min,
    either,
    number,
    path,
    several,
    size_mib,
    text,
)

HYPERVISORS = ("kvm", "qemu")
FORMER_HYPERVISOR = "skvm"


@frozen
class Key:
    """One key of `-vm`: how its value is read, and what it means, for people."""

    kind: Kind
    meaning: str


_IMAGE = text(IMAGE_NAME, "a name in the image pool (name, name.qcow2, name.img or name@revision)")
_PCI = text(
    r"([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[a-z][a-z0-9_-]{0,31}:[1-9][0-9]{0,2}",
    "a host device address (0000:3b:00.0) or a class and a number (gpu:1)",
    lower=True,
)
_NETWORK = text(NAME, "a network of the site's (vmgr config show networks)", lower=True)
_PATH = r"[^,;\x00-\x1f\x7f\ud800-\udfff]{1,1000}"
_SCRIPT = text(_PATH, "the path of an executable file, without ',' and ';'")
_DATA = text(_PATH, "the path of a file, without ',' and ';'")
_CORES = number(1, 4096)

KEYS: dict[str, Key] = {
    "img": Key(either(_IMAGE, path("the path of your own image")), "image to boot"),
    "distro": Key(choice(*DISTROS), "family of the image"),
    "arch": Key(text(r"[a-z0-9_]{1,16}", "an architecture, such as x86_64 or aarch64", lower=True), "architecture"),
    "ram": Key(size_mib(16, 2**24), "memory of each guest"),
    "vcpus": Key(number(1, 4096), "vCPUs of each guest"),
    "vms_per_node": Key(number(1, 1000), "guests on each node"),
    "vcpu_pinning": Key(either(boolean(), path("the path of a mapping file")), "pin vCPUs to the job's cores"),
    "numa": Key(choice(*NUMA), "NUMA cells of a guest with cores of its own"),
    "hugepages": Key(choice(*HUGEPAGES), "size of the memory pages of a guest with cores of its own"),
    "fs_type": Key(choice(*FS_TYPES), "what the guest's overlay stands on"),
    "warm": Key(boolean(), "start from a template of the node, where it has one; false: boot"),
    "disk": Key(_DATA, "disk of your own (vmgr disk create), attached to rank 0 and mounted on /data"),
    "metadata": Key(_DATA, "YAML file with your additions to each guest: packages of the site's list, files, commands"),
    "vm_prologue": Key(_SCRIPT, "run in the guest as the user, before the job script"),
    "vm_epilogue": Key(_SCRIPT, "run in the guest as the user, after the job script"),
    "vrdma": Key(boolean(zero_is_on=True), "RDMA in the guest"),
    "iocm": Key(boolean(zero_is_on=True), "cores reserved for virtual I/O"),
    "unclot": Key(boolean(zero_is_on=True), "a region of memory that the job's guests on a host share"),
    "iocm_min_cores": Key(_CORES, "least number of cores for virtual I/O"),
    "iocm_max_cores": Key(_CORES, "greatest number of cores for virtual I/O"),
    "unclot_shmem": Key(size_mib(1, 2**24), "size of that region, raised to a power of two"),
    "hypervisor": Key(choice(*HYPERVISORS, FORMER_HYPERVISOR), "kvm, or qemu: software emulation; skvm is refused"),
    "nodes": Key(number(1, 100_000), "number of hosts that run guests, from the first; the others stay bare"),
    "spare": Key(
        number(0, 1000), "nodes that the job asks for besides its own, to replace one that fails at the start"
    ),
    "pci": Key(several(_PCI, separator="+"), "host devices that the guest gets"),
    "network": Key(several(_NETWORK, separator="+"), "further networks of each guest, with a card on each"),
    "checkpoint": Key(choice("off", "on"), "save the guests of the job at a request, to begin again from there"),
    "checkpoint_every": Key(duration_min(1, 10_080), "save them by itself, so often"),
}
"""Every key of `-vm`.  Keys are written in small letters; words take any case, names and paths do not."""

SCRIPTS = ("vm_prologue", "vm_epilogue")
IMAGE = "img"
ADDITIONS = "metadata"
DISK = "disk"
PINNING = "vcpu_pinning"
FILES = (ADDITIONS, *SCRIPTS)
"""Keys whose file is read again when the job starts: the request says by a digest what must be there then.

So is that of `PINNING`, where it is a path.
"""
