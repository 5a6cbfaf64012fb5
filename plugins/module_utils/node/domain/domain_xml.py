# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Domain XML: what a guest's is made from, what is read back from one, and how two of them differ.  No libvirt here."""

from __future__ import annotations

import pathlib
import typing as t
import xml.etree.ElementTree as ET

from ...effects import leaves_nothing
from ...eligibility import guest_saving
from ...errors import SiteFault
from ...frozen import frozen
from ...guest_kinds import SLG
from ...rendering.templates import SITE_DIR, render

NAMESPACE = "urn:mikelangelo:vtorque:guest:1"
"""Of the metadata element that makes a domain one of ours."""
_SIZES = {
    "b": 1,
    "bytes": 1,
    "KB": 1000,
    "k": 1024,
    "KiB": 1024,
    "MB": 10**6,
    "M": 1 << 20,
    "MiB": 1 << 20,
    "GB": 10**9,
    "G": 1 << 30,
    "GiB": 1 << 30,
    "TB": 10**12,
    "T": 1 << 40,
    "TiB": 1 << 40,
}


class Device(t.Protocol):
    """A device of the host; its template is rendered with it as `device`."""

    @property
    def fragment(self) -> str:
        """The template of its part, below `templates/`."""

    @property
    def shares_memory(self) -> bool:
        """Return whether a process of the node reads and writes its guest's memory."""


class Card(t.Protocol):
    """A card on a further network; the template is rendered with all of it (`network/cards.py`)."""

    @property
    def bridge(self) -> str:
        """To which it is connected."""

    @property
    def tap(self) -> str:
        """Return the name of the card's network device on the node."""

    @property
    def mac(self) -> str:
        """Return the card's MAC address."""


class Expander(t.Protocol):
    """A bus that names a cell of the guest; the template is rendered with all of it (`devices/pci/buses.py`)."""

    @property
    def index(self) -> int:
        """The number of its controller."""


class CacheShare(t.Protocol):
    """A part of a cache of the node (`placement/cache_shares.py`)."""

    @property
    def cache(self) -> int:
        """The number of the cache."""

    @property
    def size_kib(self) -> int:
        """How large the part is."""


class Shape(t.Protocol):
    """What a guest shows of the cores it stands on; the template is rendered with all of it (`placement/cells.py`)."""

    @property
    def dedicated(self) -> bool:
        """Return whether each vCPU has one core, on which no other thread of the guest runs."""

    @property
    def page_kib(self) -> int:
        """Return the size of the pages of its memory in KiB; 0: ordinary pages."""


@frozen
class DomainSpec:
    """Everything that the template of a guest's domain may use.

    Attributes:
        virtiofs: tag and socket of each directory that a virtiofsd of ours shares.
        plan9: tag and directory of each that qemu itself shares, read-only.
        cores: those of the node on which every thread of qemu's stays (`1-3,8`); "": all.
        vcpu_cores: of these the ones of each vCPU, in their order; (): each may run on all.
        other_cores: the same for all other threads; "": on all.
        data: socket at which a process of the user's serves their own disk.
        served: socket at which one serves their own image; None: `image` is a file of the site's.
        template: which of the domains it is (`GuestKind.domain`).
        shape: sockets, cells and pages of a guest whose vCPUs have cores of their own; None: as the hypervisor has it.
        io_threads: threads of qemu's that serve disks, one for each; 0: its main thread serves all.
        queues: of its network card; with KVM each has a thread of the kernel's.  0: as libvirt has it.
        devices: of the host, each with the template of its own part (`devices/api.py`).
        cards: on further networks.
        apart: whether KSM leaves its pages alone; it would let a neighbour find out which of its own are equal.
        caches: parts of caches that its vCPUs alone fill; they need `cores`.
        expanders: buses that name the cells which devices are near.
    """

    name: str
    uuid: str
    job_id: str
    start: int
    owner: str
    rank: int
    node: str
    hypervisor: str
    arch: str
    ram_mib: int
    vcpus: int
    disk: pathlib.Path
    image: pathlib.Path
    image_format: str
    seed: pathlib.Path
    console: pathlib.Path
    agent: pathlib.Path
    bridge: str
    tap: str
    mac: str
    boot_mode: str = "bios"
    kernel: pathlib.Path | None = None
    initrd: pathlib.Path | None = None
    cmdline: str = ""
    nvram: pathlib.Path | None = None
    network_filter: str | None = None
    virtiofs: tuple[tuple[str, pathlib.Path], ...] = ()
    plan9: tuple[tuple[str, str], ...] = ()
    cores: str = ""
    vcpu_cores: tuple[str, ...] = ()
    other_cores: str = ""
    data: pathlib.Path | None = None
    served: pathlib.Path | None = None
    template: str = SLG.domain
    devices: tuple[Device, ...] = ()
    cards: tuple[Card, ...] = ()
    shape: Shape | None = None
    io_threads: int = 0
    queues: int = 0
    apart: bool = False
    caches: tuple[CacheShare, ...] = ()
    expanders: tuple[Expander, ...] = ()

    @property
    def huge(self) -> bool:
        """Return whether its memory is of huge pages."""
        return self.shape is not None and self.shape.page_kib > 0

    @property
    def shared(self) -> bool:
        """Return whether processes of the node read and write its memory."""
        return bool(self.virtiofs) or any(device.shares_memory for device in self.devices)

    @property
    def dedicated(self) -> bool:
        """Return whether its kernel may use its processors as its alone; the hints are of this architecture only."""
        return self.hypervisor == "kvm" and self.arch == "x86_64" and self.shape is not None and self.shape.dedicated

    @property
    def machine(self) -> str:
        """The machine type: PCIe on every architecture."""
        return "q35" if self.arch == "x86_64" else "virt"


@frozen
class GuestMark:
    """Whose guest a domain is, as its metadata says."""

    job_id: str
    start: int
    owner: str
    rank: int
    node: str


@frozen
class DomainFacts:
    """A domain as libvirt shows it.

    Attributes:
        state: `running`, `paused`, `shutdown`, `shutoff`, `crashed`, `blocked`, `suspended` or `unknown`.
        mark: None: not one of ours.
        xml: what libvirt says of it at this moment.
    """

    name: str
    uuid: str
    state: str
    persistent: bool
    macs: tuple[str, ...]
    disks: tuple[str, ...]
    mark: GuestMark | None
    xml: str


@leaves_nothing
def render_xml(
    spec: DomainSpec, *, site_dir: pathlib.Path | None = SITE_DIR, compiled: pathlib.Path | None = None
) -> str:
    """The domain XML of a guest, from the site's template or ours.

    Raises:
        SiteFault: the template is broken, or what it makes is not XML.
    """
    text = render(spec.template, site_dir=site_dir, compiled=compiled, spec=spec, namespace=NAMESPACE)
    parse(text, SiteFault(f"template {spec.template}", "does not give XML"))
    return text


def parse(xml: str, fault: SiteFault | None = None) -> ET.Element:
    """The root element of domain XML.

    Raises:
        SiteFault: it is not XML, or declares a document type (of which libvirt's XML has none).
    """
    fault = fault or SiteFault("domain XML", "is not well formed")
    if "<!DOCTYPE" in xml or "<!ENTITY" in xml:
        raise SiteFault(fault.what, "a document type or an entity is declared, which domain XML has no use for")
    try:
        return ET.fromstring(xml)  # noqa: S314 - no document type, so no entity that could grow
    except (ET.ParseError, ValueError) as error:
        raise SiteFault(fault.what, f"{fault.why}: {error}") from error


def read_facts(xml: str, state: str, persistent: bool) -> DomainFacts:
    """What the XML of a domain says of it."""
    root = parse(xml)
    return DomainFacts(
        name=root.findtext("name") or "",
        uuid=root.findtext("uuid") or "",
        state=state,
        persistent=persistent,
        macs=tuple(mac.get("address", "").lower() for mac in root.iterfind("devices/interface/mac")),
        disks=tuple(source.get("file", "") for source in root.iterfind("devices/disk/source") if source.get("file")),
        mark=_mark(root),
        xml=xml,
    )


def _mark(root: ET.Element) -> GuestMark | None:
    element = root.find(f"metadata/{{{NAMESPACE}}}guest")
    if element is None:
        return None
    text = {key: element.get(key, "") for key in ("job", "start", "owner", "rank", "node")}
    if not text["job"] or not text["start"].isdecimal() or not text["rank"].isdecimal():
        return None
    return GuestMark(text["job"], int(text["start"]), text["owner"], int(text["rank"]), text["node"])


def memory_bytes(xml: str) -> int:
    """Return how much memory a domain has; 0 where its XML does not say."""
    size = _size(element) if (element := parse(xml).find("memory")) is not None else 0
    return size if isinstance(size, int) else 0


def unsavable_parts(xml: str) -> frozenset[str]:
    """Return what a domain has that its memory cannot be saved with, by names of `guest_saving.REASONS`."""
    root = parse(xml)
    devices = root.find("devices")
    if devices is None:
        return frozenset()
    virtiofs = devices.findall("filesystem/driver[@type='virtiofs']")
    there = {
        guest_saving.VIRTIOFS: bool(virtiofs),
        guest_saving.PLAN9: len(devices.findall("filesystem")) > len(virtiofs),
        guest_saving.PCI: devices.find("hostdev") is not None,
        guest_saving.VHOST_USER: devices.find("interface[@type='vhostuser']") is not None,
        guest_saving.SHARED_MEMORY: devices.find("shmem") is not None,
        guest_saving.USER_DISK: devices.find(".//source[@protocol='nbd']") is not None,
        guest_saving.HUGE_PAGES: root.find("memoryBacking/hugepages") is not None,
        guest_saving.CELLS: root.find("numatune") is not None,
    }
    return frozenset(name for name, has in there.items() if has)


def boots_by_uefi(xml: str) -> bool:
    """Return whether a domain has a file of its node for the variables of UEFI."""
    return parse(xml).find("os/nvram") is not None


def differences(wanted: str, actual: str) -> tuple[str, ...]:
    """Where a living domain is not what is wanted: everything that `wanted` sets, and nothing that it leaves open.

    libvirt fills in what is left open (addresses, aliases, controllers), and spells sizes in KiB; neither counts.

    Returns:
        One line a difference: its path, what is wanted, what is there.
    """
    return tuple(_missing(parse(wanted), parse(actual), "domain"))


def _missing(wanted: ET.Element, actual: ET.Element, where: str) -> t.Iterator[str]:
    attributes = {key: value for key, value in wanted.attrib.items() if key != "unit"}
    for key, value in attributes.items():
        if actual.get(key) != value:
            yield f"{where}/@{key}: {value!r} is wanted, {actual.get(key)!r} is there"
    if _size(wanted) != _size(actual) and (wanted.text or "").strip():
        yield f"{where}: {(wanted.text or '').strip()!r} is wanted, {(actual.text or '').strip()!r} is there"
    left = list(actual)
    for child in wanted:
        alike = [other for other in left if other.tag == child.tag]
        name = child.tag.rpartition("}")[2]
        if not alike:
            yield f"{where}/{name}: is wanted, is not there"
            continue
        # of several of a kind the nearest is meant, whatever their order
        best = min(alike, key=lambda other: len(list(_missing(child, other, ""))))
        left.remove(best)
        yield from _missing(child, best, f"{where}/{name}")


def _size(element: ET.Element) -> str | int:
    text = (element.text or "").strip()
    tag = element.tag.rpartition("}")[2]
    unit = element.get("unit") or ("KiB" if tag in ("memory", "currentMemory") else None)
    return int(text) * _SIZES[unit] if unit in _SIZES and text.isdecimal() else text
