# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with templates of warm starts: real files, a real FIFO and a real channel; the hypervisor is the test's."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gzip
import hashlib
import pathlib
import socket
import threading
import time
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import read_facts, render_xml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import nft_rules
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import seed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import overlay
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import clone_xml, key, making, template
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import save_header as header_module
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages

from ..conftest import Connection, Hypervisor, Node, spec

SAVED = pathlib.Path(__file__).parents[5] / "fixtures/libvirt"
"""The beginning of what libvirt wrote for a guest of qemu 7.2 (9.0.0) and 10.0 (11.3.0): header, and 4 KiB of qemu's.

The attribute `cache` of the older one's disk was added by hand, in the form in which libvirt writes it."""
TOKEN = "f00df00df00df00df00df00df00df00d"
GUEST = "vcn1-1"


def saved(libvirt: str = "9.0.0") -> bytes:
    return gzip.decompress((SAVED / f"saved-{libvirt}.gz").read_bytes())


class GuestOfTemplate(threading.Thread):
    """What listens in a guest after the restore.

    Args:
        path: of its channel.
        obeys: does it answer its first order?
        token: of its template.
    """

    def __init__(self, path: pathlib.Path, obeys: bool, token: str = TOKEN) -> None:
        super().__init__(daemon=True)
        self.order = ""
        self._obeys, self._token = obeys, token
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()

    def run(self) -> None:
        peer, _address = self._listener.accept()
        self._listener.close()
        with contextlib.suppress(OSError), peer, peer.makefile("rb") as stream:
            word = stream.readline().split()[1].decode()
            peer.sendall(f"vtorque-agent {self._token}\nvtorque-agent {self._token} {word}\n".encode())
            line = stream.readline()
            if not line:  # it was only greeted
                return
            verb, _seconds, size = line.split()
            assert verb == b"warm"
            self.order = stream.read(int(size)).decode()
            peer.sendall(b"0 \n" if self._obeys else b"1 %s\n" % base64.b64encode(b"mac: no such device"))
            stream.read(1)


OPENS_TWICE = 11_002_000
"""From this libvirt on it opens a saved state once for its header, and once for all (qemuDomainRestoreInternal)."""


class WarmConnection(Connection):
    """libvirt that restores from a FIFO, and is perhaps restarted before a call."""

    lost = False

    def _come(self, call: str) -> None:
        hypervisor = t.cast("WarmHypervisor", self.hypervisor)
        if call == hypervisor.restarted_before:
            hypervisor.restarted_before, self.lost = "", True
            if hypervisor.dead_after_restart:
                hypervisor.dead = True
        if self.lost:
            raise NodeFault("libvirt", "internal error: client socket is closed", cause="libvirt")

    def reconnect(self, within_s: float) -> None:
        super().reconnect(within_s)
        self.lost = False

    def destroy(self, name: str) -> bool:
        self._come("destroy")
        return super().destroy(name)

    def limit_memory(self, name: str, limit_mib: int) -> bool:
        self._come("limit_memory")
        return super().limit_memory(name, limit_mib)

    def versions(self) -> dict[str, str]:
        hypervisor = t.cast("WarmHypervisor", self.hypervisor)
        return {"libvirt": hypervisor.libvirt, "qemu": hypervisor.qemu}

    def restore_paused(self, path: pathlib.Path) -> None:
        hypervisor = t.cast("WarmHypervisor", self.hypervisor)
        if int(hypervisor.libvirt) >= OPENS_TWICE:
            with path.open("rb", buffering=0) as stream:
                header_module.read_header(stream)
        with path.open("rb") as stream:
            header = header_module.read_header(stream)
            memory = stream.read()
        if memory != hypervisor.memory:
            raise VTorqueError("the start of a saved domain", "qemu: load of migration failed: Input/output error")
        facts = read_facts(header.xml, "running", False)
        root = ET.fromstring(header.xml)
        channel = root.find("devices/channel/source")
        assert channel is not None
        hypervisor.guest = GuestOfTemplate(pathlib.Path(channel.get("path", "")), hypervisor.obeys, hypervisor.token)
        (hypervisor.place / f"{facts.name}.still").touch()
        new = hypervisor.place / f".{facts.name}"
        new.write_text(header.xml)
        new.rename(hypervisor.place / f"{facts.name}.xml")
        hypervisor.restored.append(facts.name)

    def plug(self, name: str, devices: t.Iterable[str]) -> None:
        self._come("plug")
        hypervisor = t.cast("WarmHypervisor", self.hypervisor)
        assert hypervisor.running[name].state == "paused", "what is plugged in is there before the guest runs"
        for xml in devices:
            if hypervisor.refuses_devices:
                raise VTorqueError(f"the devices of domain {name}", "No more available PCI slots")
            hypervisor.plugged.append(xml)

    def pause(self, name: str, *, paused: bool) -> bool:
        self._come("pause")
        changed = super().pause(name, paused=paused)
        if not paused:
            guest = t.cast("WarmHypervisor", self.hypervisor).guest
            assert guest is not None
            guest.start()
        return changed


class WarmHypervisor(Hypervisor):
    """A hypervisor of which some guests come from a template."""

    libvirt, qemu = "9000000", "7002000"
    obeys = True
    memory = b""
    token = TOKEN
    guest: GuestOfTemplate | None = None

    def __init__(self, place: pathlib.Path) -> None:
        super().__init__(place)
        self.restored: list[str] = []
        self.plugged: list[str] = []
        self.refuses_devices = False
        self.restarted_before = ""
        self.dead_after_restart = False

    def connect(self, _uri: str, **_how: object) -> Connection:
        return WarmConnection(self)


class TemplateNode:
    """A node that has warm starts.

    Args:
        node: with a pool.
        patch: of the test.
    """

    def __init__(self, node: Node, patch: pytest.MonkeyPatch) -> None:
        self.node = node
        self.hypervisor = WarmHypervisor(node.settings.pool.parent / "warm-libvirt")
        node.hypervisor = self.hypervisor
        patch.setattr(present_absent, "Domains", self.hypervisor.connect)
        node.settings = dataclasses.replace(node.settings, warm_start=True)
        disk = node.settings.pool / "tiny.img"
        record = {"warm": "1", "disk_sha256": "d" * 64}
        self.image = images.Image("tiny", disk, "raw", images.Boot(), "debian", "x86_64", 1 << 20, record)
        patch.setattr(images, "find", lambda _name, _pool: self.image)
        patch.setattr(seed, "render", lambda _told, *_places: {"user-data": USER_DATA})
        patch.setattr(nft_rules, "apply_rules", lambda *_words: None)
        patch.setattr(key, "CPUINFO", disk)

    def part(self, **changes: t.Any) -> messages.NodePart:
        one = self.node.part()
        return dataclasses.replace(one, guests=(spec(warm=True, **changes),))

    def present(self, **changes: t.Any) -> str:
        """What a guest's record says of its start."""
        (facts,) = self.node.present(self.part(**changes))
        return facts.warm

    def make_template(self, **changes: t.Any) -> template.Template:
        """A template of the guest that `part` asks for, as `making.make` leaves it."""
        settings = self.node.settings
        one = spec(**changes)
        shape = clone_xml.spec_of(
            self.image, clone_xml.Size(one.vcpus, one.ram_mib, one.hypervisor, one.arch), settings
        )
        with self.hypervisor.connect("") as domains:
            of_template = making.key_of(making.TemplateSpec(shape, self.image), settings, domains)
        memory = self._memory(shape)
        with template.workplace(settings) as place:
            (place / template.MEMORY).write_bytes(memory)
            (place / template.SEED).write_bytes(b"neutral")
            overlay_of(self.image, place / template.DISK, self.node)
            record = template.Record(
                form=key.FORM, key=of_template, image="tiny@1", vcpus=one.vcpus, ram_mib=one.ram_mib, token=TOKEN,
                made=time.time(), seconds=1.0, memory_bytes=len(memory),
                memory_sha256=hashlib.sha256(memory).hexdigest(),
                disk_sha256=hashlib.sha256((place / template.DISK).read_bytes()).hexdigest(),
                files={},
            )  # fmt: skip
            return template.publish(place, record, settings)

    def _memory(self, shape: t.Any) -> bytes:
        """As libvirt would have saved a guest of this shape: its XML, and memory that is not short."""
        xml = clone_xml.of_template(render_xml(shape, site_dir=None), clone_xml.count_ports(self.node.settings))
        xml = xml.replace('machine="q35"', 'machine="pc-q35-7.2"')
        self.hypervisor.memory = b"QEVM" + bytes(range(256)) * 12_000
        return header_module.header_of(xml, b"<cookie/>\0") + self.hypervisor.memory


def overlay_of(image: images.Image, path: pathlib.Path, node: Node) -> None:
    overlay.make_overlay(image, path, node.soon())


USER_DATA = """#cloud-config
write_files:
- {path: "/etc/vtorque/guest.env", owner: "root:root", permissions: "0644", encoding: b64, content: "VD0x"}
- {path: "/etc/ssh/ssh_host_ed25519_key", owner: "root:root", permissions: "0600", encoding: b64, content: "a2V5"}
"""
