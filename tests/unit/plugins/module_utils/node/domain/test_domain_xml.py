# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Domain XML: valid for libvirt's own schema, exact for any text, and comparable."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.guest_kinds import OSV
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.api import HostDevice
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.pci.buses import Expander
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import (
    DomainSpec,
    GuestMark,
    differences,
    parse,
    read_facts,
    render_xml,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.cache_shares import CacheShare
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.cells import Shape
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.place import GuestCell
from hypothesis import given
from hypothesis import strategies as st

GUEST = pathlib.Path("/var/lib/vtorque/guests/7.head.1/vcn1-1")
SPEC = DomainSpec(
    name="vcn1-1", uuid="3b33ef89-55f0-47d0-bcf7-e06aa1dd1806", job_id="7.head", start=1, owner="alice", rank=0,
    node="cn1", hypervisor="kvm", arch="x86_64", ram_mib=256, vcpus=2, disk=GUEST / "disk.qcow2",
    image=pathlib.Path("/opt/vm-images/tiny@1/disk.qcow2"), image_format="qcow2", seed=GUEST / "seed.iso",
    console=GUEST / "console.log", agent=pathlib.Path("/run/vtorque/agents/1"), bridge="br0",
    tap="vtq1", mac="52:54:00:00:01:01",
)  # fmt: skip
KERNEL: dict[str, t.Any] = {
    "boot_mode": "kernel", "kernel": GUEST / "vmlinuz", "initrd": GUEST / "initrd", "cmdline": "console=ttyS0",
}  # fmt: skip
CELLS = (GuestCell(0, (0,), 128), GuestCell(1, (1,), 128))
SHAPE = Shape(CELLS, ((10, 21), (21, 10)), 2, 1, 1, dedicated=True, page_kib=2048)
OWN_CORES: dict[str, t.Any] = {"cores": "0-2", "vcpu_cores": ("1", "2"), "other_cores": "0"}
VARIANTS: dict[str, dict[str, t.Any]] = {
    "kvm": {},
    "qemu": {"hypervisor": "qemu"},
    "kernel": KERNEL,
    "kernel without initrd": {**KERNEL, "initrd": None},
    "uefi": {"boot_mode": "uefi", "nvram": GUEST / "nvram.fd"},
    "arm": {"arch": "aarch64", "boot_mode": "uefi", "nvram": GUEST / "nvram.fd"},
    "raw image": {"image_format": "raw"},
    "filtered": {"network_filter": "clean-traffic"},
    "cores": {"cores": "1-3,8"},
    "pinned": {"cores": "1-4", "vcpu_cores": ("2", "3-4"), "other_cores": "1"},
    "cells": {**OWN_CORES, "shape": SHAPE},
    "cells of an emulated guest": {**OWN_CORES, "shape": SHAPE, "hypervisor": "qemu"},
    "cells and shares": {**OWN_CORES, "shape": SHAPE, "virtiofs": (("vtorque0", GUEST / "vtorque0.sock"),)},
    "one cell": {**OWN_CORES, "shape": Shape(CELLS[:1], (), 1, 1, 1, dedicated=False)},
    "cores alone": {**OWN_CORES, "shape": Shape((), (), 1, 1, 1, dedicated=True)},
    "cores for virtual I/O": {
        **OWN_CORES,
        "other_cores": "1-2",
        "io_threads": 2,
        "queues": 2,
        "data": GUEST / "d.sock",
    },
    "parts of caches": {"cores": "1-2", "vcpus": 2, "caches": (CacheShare(0, 27648), CacheShare(1, 24576))},
    "a disk of the user's": {"data": GUEST / "data.sock"},
    "an image of the user's": {"served": GUEST / "image.sock"},
    "devices of the host": {"devices": (HostDevice("pci", "0000:3b:00.0"), HostDevice("region", "vtorque-1", "", 64))},
    "a mediated device": {"devices": (HostDevice("mdev", "3b33ef89-55f0-47d0-bcf7-e06aa1dd1806"),)},
    "devices near its cells": {
        **OWN_CORES,
        "shape": SHAPE,
        "devices": (HostDevice("pci", "0000:3b:00.0", port=2), HostDevice("pci", "0000:c9:00.0", port=4)),
        "expanders": (Expander(1, 64, 0, (2,)), Expander(3, 159, 1, (4,))),
    },
    "osv": {"template": OSV.domain},
    "shares": {
        "virtiofs": (("vtorque0", GUEST / "vtorque0.sock"), ("vtorque1", GUEST / "vtorque1.sock")),
        "plan9": (("vtorque2", "/srv/it's <here>"),),
    },
}
# what XML 1.0 can hold; libvirt's XML reader takes no other either
XML_TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffe\uffff"), min_size=1)


def render(**changes: t.Any) -> str:
    return render_xml(dataclasses.replace(SPEC, **changes), site_dir=None)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_every_variant_is_valid_for_libvirts_schema(changes: dict[str, t.Any], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "domain.xml"
    file.write_text(render(**changes), encoding="utf-8")
    done = subprocess.run(
        ["virt-xml-validate", file, "domain"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_schema_check_would_notice(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "domain.xml"
    file.write_text(render().replace("<devices>", "<devices><bogus/>"), encoding="utf-8")
    done = subprocess.run(["virt-xml-validate", file, "domain"], capture_output=True, timeout=60, check=False)
    assert done.returncode != 0


def test_guest_without_parts_of_caches_has_no_word_of_them() -> None:
    root = parse(render(**VARIANTS["parts of caches"]))
    (tune,) = root.iterfind("cputune/cachetune")
    assert tune.get("vcpus") == "0-1"
    assert [dict(share.attrib) for share in tune] == [
        {"id": "0", "level": "3", "type": "both", "size": "27648", "unit": "KiB"},
        {"id": "1", "level": "3", "type": "both", "size": "24576", "unit": "KiB"},
    ]
    assert "cachetune" not in render(cores="1-2", vcpus=2)


def test_guest_of_osv_differs_in_its_console_and_has_no_channel() -> None:
    """All that there is of devices else is the same."""
    ours, osv = (parse(render(**changes)).find("devices") for changes in ({}, {"template": OSV.domain}))
    assert ours is not None
    assert osv is not None
    serial = osv.find("serial")
    assert serial is not None
    assert (serial.get("type"), serial.find("source").get("path")) == ("unix", str(SPEC.agent))  # type: ignore[union-attr]
    assert serial.find("log").get("file") == str(SPEC.console)  # type: ignore[union-attr]
    assert osv.find("channel") is None

    def others(devices: ET.Element) -> list[str]:
        return [ET.tostring(one).decode().strip() for one in devices if one.tag not in ("serial", "channel")]

    assert others(osv) == others(ours)


def test_a_pinned_guest_has_a_place_for_each_vcpu_and_one_for_all_other_threads() -> None:
    root = parse(render(**VARIANTS["pinned"]))
    pins = [(pin.get("vcpu"), pin.get("cpuset")) for pin in root.iterfind("cputune/vcpupin")]
    assert pins == [("0", "2"), ("1", "3-4")]
    assert root.find("cputune/emulatorpin").get("cpuset") == "1"  # type: ignore[union-attr]
    assert root.find("vcpu").attrib == {"placement": "static", "cpuset": "1-4"}  # type: ignore[union-attr]


def test_a_guest_without_pinning_has_the_xml_that_it_had_before() -> None:
    tune = render(cores="1-3").partition("<vcpu ")[2].partition("<os>")[0]
    assert tune == (
        "placement='static' cpuset='1-3'>2</vcpu>\n  <cputune>\n    <emulatorpin cpuset='1-3'/>\n  </cputune>\n  "
    )


@pytest.mark.parametrize("name", [name for name, changes in VARIANTS.items() if "io_threads" not in changes])
def test_a_guest_without_cores_for_virtual_io_has_no_trace_of_them(name: str) -> None:
    xml = render(**VARIANTS[name])
    assert not [word for word in ("iothread", "vhost", "queues=") if word in xml]


def test_a_guest_with_cores_for_virtual_io_has_a_thread_for_each_disk_on_them() -> None:
    root = parse(render(**VARIANTS["cores for virtual I/O"]))
    assert root.findtext("iothreads") == "2"
    pins = [(pin.get("iothread"), pin.get("cpuset")) for pin in root.iterfind("cputune/iothreadpin")]
    assert pins == [("1", "1-2"), ("2", "1-2")]
    disks = {disk.find("target").get("dev"): disk.find("driver") for disk in root.iterfind("devices/disk")}  # type: ignore[union-attr]
    assert {name: driver.get("iothread") for name, driver in disks.items()} == {"vda": "1", "vdb": None, "vdc": "2"}  # type: ignore[union-attr]
    assert root.find("devices/interface/driver").attrib == {"name": "vhost", "queues": "2"}  # type: ignore[union-attr]


def test_an_emulated_guest_has_no_host_processor() -> None:
    assert parse(render(hypervisor="qemu")).find("cpu") is None
    assert parse(render()).find("cpu").get("mode") == "host-passthrough"  # type: ignore[union-attr]


def test_the_image_is_not_relabelled_and_the_chain_ends_with_it() -> None:
    backing = parse(render()).find("devices/disk/backingStore")
    assert backing is not None
    labels = {label.get("model"): label.get("relabel") for label in backing.iterfind("source/seclabel")}
    assert labels == {"dac": "no", "selinux": "no"}
    inner = backing.find("backingStore")
    assert inner is not None
    assert list(inner) == []


def test_the_seed_is_read_only_and_nothing_is_offered_that_a_job_has_no_use_for() -> None:
    root = parse(render())
    disks = root.findall("devices/disk")
    assert [disk.find("readonly") is not None for disk in disks] == [False, True]
    assert root.find("devices/graphics") is None
    assert root.find("devices/controller[@type='usb']").get("model") == "none"  # type: ignore[union-attr]
    assert root.find("devices/memballoon").get("model") == "none"  # type: ignore[union-attr]


def test_disks_are_files_or_come_from_a_process_of_the_users() -> None:
    """None is a volume of a pool of libvirt's, which libvirt would look through again and again."""
    for changes in VARIANTS.values():
        for disk in parse(render(**changes)).iter("disk"):
            assert disk.get("type") in ("file", "network")
            assert disk.find("source").get("pool") is None  # type: ignore[union-attr]


def test_only_the_disk_that_goes_with_its_start_is_not_flushed() -> None:
    """What a user has of their own keeps what their guest was promised of it."""
    for changes in VARIANTS.values():
        drivers = {
            disk.find("target").get("dev"): disk.find("driver").get("cache")  # type: ignore[union-attr]
            for disk in parse(render(**changes)).iter("disk")
        }
        assert drivers.pop("vda") == "unsafe"
        assert set(drivers.values()) == {None}


def test_the_channel_is_our_own_and_no_guest_agents() -> None:
    """Distributions bound what a guest agent of theirs may be asked for (Enterprise Linux: no guest-exec)."""
    names = [target.get("name") for target in parse(render()).iterfind("devices/channel/target")]
    assert names == ["org.vtorque.0"]


@pytest.mark.parametrize("cores", ["", "2-5"])
def test_a_guest_has_all_its_processors_pinned_or_not(cores: str) -> None:
    """Without the element libvirt gives one."""
    (vcpu,) = parse(render(vcpus=4, cores=cores)).findall("vcpu")
    assert (vcpu.text, vcpu.get("cpuset", "")) == ("4", cores)


def test_libvirt_chooses_the_program_and_what_confines_it() -> None:
    # Enterprise Linux has it as /usr/libexec/qemu-kvm, under SELinux; Debian has AppArmor
    root = parse(render())
    assert root.find("devices/emulator") is None
    assert root.find("seclabel") is None


def test_a_guest_that_ends_or_restarts_is_gone() -> None:
    root = parse(render())
    assert {root.findtext(key) for key in ("on_poweroff", "on_reboot", "on_crash")} == {"destroy"}


@given(owner=XML_TEXT, job_id=XML_TEXT, image=XML_TEXT, cmdline=XML_TEXT, name=XML_TEXT)
def test_any_text_comes_back_as_it_was(owner: str, job_id: str, image: str, cmdline: str, name: str) -> None:
    text = render(owner=owner, job_id=job_id, image=image, cmdline=cmdline, name=name, kernel="/k")
    root = parse(text)
    facts = read_facts(text, "running", False)
    assert facts.mark == GuestMark(job_id, 1, owner, 0, "cn1")
    assert root.find("devices/disk/backingStore/source").get("file") == image  # type: ignore[union-attr]
    assert root.findtext("os/cmdline") == cmdline
    assert facts.name == name


@given(owner=XML_TEXT)
def test_no_text_adds_an_element(owner: str) -> None:
    plain = [element.tag for element in parse(render()).iter()]
    assert [element.tag for element in parse(render(owner=owner)).iter()] == plain


def test_facts_of_a_foreign_domain_have_no_mark() -> None:
    facts = read_facts("<domain><name>web</name><uuid>u</uuid></domain>", "running", True)
    assert (facts.name, facts.mark, facts.macs, facts.disks) == ("web", None, (), ())


@pytest.mark.parametrize("attribute", ["job", "start", "rank"])
def test_metadata_that_lacks_what_it_must_say_is_not_ours(attribute: str) -> None:
    root = parse(render())
    for element in root.iter():
        element.attrib.pop(attribute, None)
    assert read_facts(ET.tostring(root, encoding="unicode"), "running", False).mark is None


@pytest.mark.parametrize("text", ["", "<domain>", "no xml", '<!DOCTYPE d [<!ENTITY a "b">]><domain>&a;</domain>'])
def test_text_that_is_no_domain_xml_is_refused(text: str) -> None:
    with pytest.raises(SiteFault):
        parse(text)


def test_sites_template_that_gives_no_xml_is_the_sites_fault(tmp_path: pathlib.Path) -> None:
    (tmp_path / "domain.xml.j2").write_text("<domain>{{ spec.name }}")
    with pytest.raises(SiteFault, match=r"domain\.xml\.j2"):
        render_xml(SPEC, site_dir=tmp_path)


WANTED = """<domain type='test'><name>a</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type>hvm</type></os>
<devices><interface type='bridge'><mac address='52:54:00:00:00:01'/></interface>
<interface type='bridge'><mac address='52:54:00:00:00:02'/></interface></devices></domain>"""
ACTUAL = """<domain type='test' id='3'><name>a</name><uuid>u</uuid><memory unit='KiB'>65536</memory>
<vcpu placement='static'>1</vcpu><os><type arch='x86_64'>hvm</type><boot dev='hd'/></os><devices>
<interface type='bridge'><mac address='52:54:00:00:00:02'/><target dev='t1'/></interface>
<interface type='bridge'><mac address='52:54:00:00:00:01'/><target dev='t0'/></interface></devices></domain>"""


def test_domain_with_additions_of_libvirt_has_no_difference() -> None:
    assert differences(WANTED, ACTUAL) == ()


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        (">64<", ">65<", "domain/memory"),
        ("type='test'", "type='kvm'", "domain/@type"),
        (">1</vcpu>", ">2</vcpu>", "domain/vcpu"),
        ("00:02", "00:03", "domain/devices/interface/mac/@address"),
        ("<devices>", "<devices><rng model='virtio'/>", "domain/devices/rng"),
        ("<os>", "<os><loader>/x</loader>", "domain/os/loader"),
    ],
)
def test_domain_without_a_wanted_element_names_it(old: str, new: str, where: str) -> None:
    found = differences(WANTED.replace(old, new, 1), ACTUAL)
    assert len(found) == 1
    assert found[0].startswith(f"{where}:")


def test_of_a_users_image_libvirt_knows_the_socket_alone() -> None:
    """No file of theirs, which it could chown, relabel or probe."""
    text = render(image=pathlib.Path("/home/alice/own.qcow2"), image_format="raw", served=GUEST / "image.sock")
    assert "/home/alice" not in text
    root = ET.fromstring(text)
    base = root.find("devices/disk[1]/backingStore")
    assert base is not None
    assert base.get("type") == "network"
    assert base.find("format").attrib == {"type": "raw"}  # type: ignore[union-attr]
    assert base.find("source/host").get("socket") == str(GUEST / "image.sock")  # type: ignore[union-attr]
    assert base.find("backingStore") is not None


def test_hints_of_own_cores_are_for_kvm_guests_with_one_core_each_alone() -> None:
    """A guest that waits as if nobody else had its core would steal time from who has it."""
    for changes, hinted in (
        ({"shape": SHAPE}, True),
        ({"shape": dataclasses.replace(SHAPE, dedicated=False)}, False),
        ({"shape": SHAPE, "hypervisor": "qemu"}, False),
        ({"shape": SHAPE, "arch": "aarch64"}, False),
        ({}, False),
    ):
        root = parse(render(**OWN_CORES, **changes))
        assert (root.find("features/kvm/hint-dedicated") is not None) == hinted
        assert (root.find("cpu/cache") is not None) == hinted


def test_device_near_a_cell_is_behind_the_bus_that_names_it() -> None:
    root = parse(render_xml(dataclasses.replace(SPEC, **VARIANTS["devices near its cells"])))
    controllers = {one.get("index"): one for one in root.iterfind("devices/controller[@type='pci']")}
    found = []
    for device in root.iterfind("devices/hostdev"):
        [own] = device.findall("address")
        port = controllers[str(int(own.get("bus", ""), 16))]
        [above] = port.findall("address")
        expander = controllers[str(int(above.get("bus", ""), 16))]
        found.append((port.get("model"), expander.get("model"), expander.findtext("target/node")))
    assert found == [("pcie-root-port", "pcie-expander-bus", cell) for cell in ("0", "1")]


def test_guest_with_cells_has_the_memory_of_each_from_one_of_the_nodes() -> None:
    root = parse(render(**OWN_CORES, shape=SHAPE))
    assert root.find("numatune/memory").attrib == {"mode": "strict", "nodeset": "0-1"}  # type: ignore[union-attr]
    assert [one.attrib for one in root.iterfind("numatune/memnode")] == [
        {"cellid": "0", "mode": "strict", "nodeset": "0"}, {"cellid": "1", "mode": "strict", "nodeset": "1"},
    ]  # fmt: skip
    assert root.find("cpu/topology").attrib == {"sockets": "2", "cores": "1", "threads": "1"}  # type: ignore[union-attr]
    assert root.find("memoryBacking/source").get("type") == "memfd"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changes", [{}, {"virtiofs": (("home", pathlib.Path("/run/s")),)}, {**OWN_CORES, "shape": SHAPE}]
)
def test_pages_of_a_guest_that_is_kept_apart_are_never_merged(changes: dict[str, t.Any]) -> None:
    root = parse(render(**changes, apart=True))
    assert len(root.findall("memoryBacking/nosharepages")) == 1
    plain = parse(render(**changes))
    assert (root.find("memoryBacking/source") is None) == (plain.find("memoryBacking/source") is None)
