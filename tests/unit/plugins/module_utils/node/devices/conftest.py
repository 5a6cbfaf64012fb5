# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with PCI devices: a tree as sysfs, procfs and /dev have it, and a kernel that does what is written there."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.pci import (
    passthrough,
    sysfs_binding,
    usage,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import pci

NIC, DISK, GPU = "0000:01:00.0", "0000:02:00.0", "0000:05:00.0"


class Tree:
    """Devices of a node; what is written to their files has the kernel's effect (`write`)."""

    def __init__(self, root: pathlib.Path) -> None:
        self.sys, self.proc, self.dev = root / "sys", root / "proc", root / "dev"
        self.busy: set[str] = set()
        self.with_address: set[str] = set()
        self.hangs: set[str] = set()
        """Names of files at which the kernel never returns."""
        self.dies: set[str] = set()
        """Devices that answer no more after a reset."""
        for place in ("bus/pci/devices", "bus/pci/drivers/vfio-pci", "class/net", "class/block"):
            (self.sys / place).mkdir(parents=True)
        for number in (0, 1):
            cell = self.sys / f"devices/system/node/node{number}"
            cell.mkdir(parents=True)
            (cell / "cpulist").write_text(f"{2 * number}-{2 * number + 1}\n")
        (self.proc / "net").mkdir(parents=True)
        (self.proc / "self").mkdir()
        (self.proc / "self/status").write_text("Name:\tpython3\nCapEff:\t000001ffffffffff\n")
        self.dev.mkdir()

    @property
    def host(self) -> usage.Host:
        return usage.Host(
            self.sys, self.proc, self.dev, lambda name: name in self.with_address, lambda path: path.name in self.busy
        )

    def add(
        self, address: str, *, code: str = "0x020000", driver: str = "e1000e", group: str | None = None,
        resets: str | None = "pm bus", bus: str | None = None, vendor: int = 0x8086, **files: str,
    ) -> pathlib.Path:  # fmt: skip
        """A device; each without a bus of another's is behind a port of its own."""
        group = address[5:7].lstrip("0") or "0" if group is None else group
        place = self.sys / "devices/pci0000:00" / (bus or f"0000:00:{address[5:7]}.0") / address
        place.mkdir(parents=True)
        (self.sys / "bus/pci/devices" / address).symlink_to(place)
        (place / "config").write_bytes(vendor.to_bytes(2, "little") + (0x10D3).to_bytes(2, "little") + b"\0" * 60)
        (place / "driver_override").write_text("(null)\n")
        if resets is not None:
            (place / "reset").touch()
            (place / "reset_method").write_text(f"{resets}\n")
        for name, text in {"class": code, "numa_node": "-1", "boot_vga": "0", **files}.items():
            (place / name).write_text(f"{text}\n")
        if group:
            devices = self.sys / "kernel/iommu_groups" / group / "devices"
            devices.mkdir(parents=True, exist_ok=True)
            (devices / address).symlink_to(place)
            (place / "iommu_group").symlink_to(devices.parent)
        if driver:
            self.bind(address, driver)
        return place

    def place(self, address: str) -> pathlib.Path:
        return self.sys / "bus/pci/devices" / address

    def bind(self, address: str, driver: str) -> None:
        there = self.sys / "bus/pci/drivers" / driver
        there.mkdir(parents=True, exist_ok=True)
        (there / "unbind").touch()
        (self.place(address) / "driver").symlink_to(there)

    def driver(self, address: str) -> str:
        link = self.place(address) / "driver"
        return link.readlink().name if link.is_symlink() else ""

    def add_disk(self, address: str = DISK, **more: t.Any) -> None:
        place = self.add(address, code="0x010802", driver="nvme", resets="flr bus", **more)
        for name, kind, number in (("nvme0n1", "disk", "259:0"), ("nvme0n1p1", "partition", "259:1")):
            block = place / "nvme/nvme0" / ("nvme0n1" if kind == "disk" else "nvme0n1/nvme0n1p1")
            (block / "holders").mkdir(parents=True)
            (block / "dev").write_text(f"{number}\n")
            (block / "uevent").write_text(f"DEVNAME={name}\nDEVTYPE={kind}\n")
            (self.sys / "class/block" / name).symlink_to(block)
        (place / "nvme/nvme0/uevent").write_text("DEVNAME=nvme0\n")

    def add_netdev(self, address: str = NIC, name: str = "eth9") -> pathlib.Path:
        card = self.place(address).resolve() / "net" / name
        card.mkdir(parents=True)
        (self.sys / "class/net" / name).symlink_to(card)
        return card

    def add_program(self, pid: int, name: str, file: str) -> None:
        descriptors = self.proc / str(pid) / "fd"
        descriptors.mkdir(parents=True)
        (descriptors.parent / "comm").write_text(f"{name}\n")
        (descriptors / "5").symlink_to(file)

    def write(self, path: pathlib.Path, text: str) -> None:
        """The kernel's side of a write to a file of sysfs."""
        if path.name in self.hangs:
            while True:
                signal.pause()
        text = text.strip()
        if path.name == "driver_override":
            path.write_text(f"{text or '(null)'}\n")
        elif path.name == "unbind":
            (self.place(text) / "driver").unlink()
        elif path.name == "reset":
            if path.parent.resolve().name in self.dies:
                (path.parent / "config").write_bytes(b"\xff" * 64)
        elif path.name == "drivers_probe" and not self.driver(text):
            override = (self.place(text) / "driver_override").read_text().strip()
            self.bind(text, self.usual[text] if override == "(null)" else override)

    usual: t.ClassVar[dict[str, str]] = {NIC: "e1000e", DISK: "nvme", GPU: "bochs-drm"}


@pytest.fixture
def tree(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    here = Tree(tmp_path / "root")
    monkeypatch.setattr(passthrough, "HOST", here.host)
    monkeypatch.setattr(sysfs_binding, "_write", here.write)
    monkeypatch.setattr(os, "setsid", lambda: None)  # pytest's own child is ended with the tests
    return here


def class_of(name: str, *addresses: str, **changes: t.Any) -> pci.PciClass:
    return dataclasses.replace(pci.read_line(f"{name} {' '.join(addresses)}"), **changes)
