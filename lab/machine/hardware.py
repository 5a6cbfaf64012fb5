# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine has, as options of qemu: processors with SVM, two NUMA cells, an IOMMU and cards to hand on."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

CARD = "52:54:00:00:00:01"
"""Of the card by which the machine below comes in."""
CELLS = 2
DISK_MIB = 640
"""Of each NVMe disk: a file without content, of which only what is written takes room."""
DISKS = ("block", "virtual")


@dataclasses.dataclass(frozen=True)
class Size:
    """How large it is.

    Attributes:
        processors: evenly over its cells.
        memory_mib: evenly over its cells; half of it is what the machine writes at most.
    """

    processors: int = 4
    memory_mib: int = 6144


def options(size: Size, files: pathlib.Path) -> list[str]:
    """Return the options that describe the machine.

    qemu emulates AMD's SVM with nested paging, so that kvm_amd finds a processor that it can use; with the IOMMU vfio
    has groups.  Both were tried with qemu 7.2 and the distribution's kernel 6.1.

    Args:
        size: of the machine.
        files: directory of the disks, of which this process makes none.
    """
    cores, memory = size.processors // CELLS, size.memory_mib // CELLS
    found = [
        "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off,erms=off,fsrm=off",
        "-smp", f"{size.processors},sockets={CELLS},cores={cores}", "-m", str(size.memory_mib),
        "-device", "intel-iommu,intremap=on,eim=off",
    ]  # fmt: skip
    for cell in range(CELLS):
        first = cell * cores
        found += ["-object", f"memory-backend-ram,id=cell{cell},size={memory}M"]
        found += ["-numa", f"node,nodeid={cell},cpus={first}-{first + cores - 1},memdev=cell{cell}"]
    return [*found, *(word for device in _devices(files) for word in device)]


def _devices(files: pathlib.Path) -> t.Iterator[tuple[str, str]]:
    """Cards for PCI passthrough, each kind that a pre-flight must tell from the others."""
    for number in range(1, 6):
        yield "-device", f"pcie-root-port,id=port{number},chassis={number}"
    # a card that may be handed on: a group of its own, reset by power management and by its bus
    yield "-device", "e1000e,bus=port1"
    # a disk that may be handed on unless it is mounted: function level reset
    yield "-drive", f"if=none,id=block,format=raw,file={files / 'block.raw'}"
    yield "-device", "nvme,drive=block,serial=block,bus=port2"
    # a disk with virtual functions
    yield "-drive", f"if=none,id=virtual,format=raw,file={files / 'virtual.raw'}"
    yield "-device", "nvme-subsys,id=subsystem"
    yield (
        "-device",
        (
            "nvme,serial=virtual,subsys=subsystem,bus=port3,sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2,"
            "max_ioqpairs=6,msix_qsize=4"
        ),
    )
    yield "-device", "nvme-ns,drive=virtual"
    # two cards in one group
    yield "-device", "pcie-pci-bridge,id=bridge,bus=port4"
    yield "-device", "e1000,bus=bridge,addr=1"
    yield "-device", "e1000,bus=bridge,addr=2"
    # class 0380, as processors of graphics that draw on no screen have it
    yield "-device", "bochs-display,bus=port5"
    # no way to reset it
    yield "-device", "edu,bus=pcie.0"
    # a card of the second cell
    yield "-device", f"pxb-pcie,id=far,bus_nr=200,numa_node={CELLS - 1},bus=pcie.0"
    yield "-device", "pcie-root-port,id=port6,chassis=6,bus=far"
    yield "-device", "e1000e,bus=port6"
