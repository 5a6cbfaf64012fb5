# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What libvirt saved becomes the domain of a guest, with all that a cold start would give it."""

from __future__ import annotations

import dataclasses
import io
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import (
    DomainSpec,
    differences,
    parse,
    read_facts,
    render_xml,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import clone_xml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm.save_header import read_header
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists.mounts import Mount

from .template_node import saved

PLACE = pathlib.Path("/var/lib/vtorque/guests/7.fe.1/vcn1-1")
SPEC = DomainSpec(
    name="vcn1-1", uuid="11111111-2222-4333-8444-555555555555", job_id="7.fe", start=1, owner="alice", rank=0,
    node="cn1", hypervisor="qemu", arch="x86_64", ram_mib=192, vcpus=1, disk=PLACE / "disk.qcow2",
    image=pathlib.Path("/opt/vm-images/tiny@4/disk.qcow2"), image_format="qcow2", seed=PLACE / "seed.iso",
    console=PLACE / "console.log", agent=pathlib.Path("/run/vtorque/agents/1"), bridge="br0", tap="vtq1",
    mac="52:54:00:00:01:01", boot_mode="kernel", kernel=PLACE / "vmlinuz", initrd=PLACE / "initrd",
    cmdline="console=ttyS0 quiet cryptomgr.notests",
)  # fmt: skip
"""A guest of the shape that was saved in the fixture."""


def xml_of(**changes: t.Any) -> str:
    return render_xml(dataclasses.replace(SPEC, **changes), site_dir=None)


@pytest.fixture(scope="module")
def template() -> str:
    return read_header(io.BytesIO(saved())).xml


def test_clone_has_all_that_its_guest_would_have_cold_and_nothing_of_the_template(template: str) -> None:
    text, _plugged = clone_xml.xml_of_clone(template, xml_of())
    assert differences(xml_of().replace("'q35'", "'pc-q35-7.2'"), text) == ()
    assert "making." not in text
    assert clone_xml.NAME not in text
    assert clone_xml.TAP not in text
    facts = read_facts(text, "running", False)
    assert (facts.name, facts.uuid, facts.macs) == ("vcn1-1", SPEC.uuid, ("52:54:00:00:01:01",))
    assert facts.mark is not None
    assert (facts.mark.job_id, facts.mark.owner) == ("7.fe", "alice")


def test_clone_keeps_the_places_of_the_template_s_devices(template: str) -> None:
    text, _plugged = clone_xml.xml_of_clone(template, xml_of())
    for path in ("interface", "rng", "disk/[target]"):
        name = path.partition("/")[0]
        before, after = parse(template).findall(f"devices/{name}"), parse(text).findall(f"devices/{name}")
        assert [one.find("address").attrib for one in after] == [  # type: ignore[union-attr]
            one.find("address").attrib
            for one in before  # type: ignore[union-attr]
        ]


def test_clone_has_its_own_cores_where_the_node_says_so(template: str) -> None:
    text, _plugged = clone_xml.xml_of_clone(template, xml_of(cores="2-3", other_cores="3"))
    root = parse(text)
    assert root.find("vcpu").get("cpuset") == "2-3"  # type: ignore[union-attr]
    assert root.find("cputune/emulatorpin").get("cpuset") == "3"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changes",
    [
        {"vcpus": 2, "ram_mib": 192, "hypervisor": "kvm"},
        {"ram_mib": 256},
        {"plan9": (("vtorque0", "/srv/data"),)},
        {"queues": 4},
        {"cmdline": "console=ttyS0 debug"},
    ],
)
def test_guest_of_another_shape_is_no_clone(template: str, changes: dict[str, t.Any]) -> None:
    with pytest.raises(VTorqueError, match="of another shape"):
        clone_xml.xml_of_clone(template, xml_of(**changes))


def test_clone_has_the_threads_of_disks_and_each_vcpu_where_its_node_says(template: str) -> None:
    cores = {"cores": "1-3", "vcpu_cores": ("2",), "other_cores": "1,3", "io_threads": 1}
    text, plugged = clone_xml.xml_of_clone(template, xml_of(**cores))
    root = parse(text)
    assert plugged == ()
    assert root.findtext("iothreads") == "1"
    assert root.find("devices/disk/driver").get("iothread") == "1"  # type: ignore[union-attr]
    pins = {element.tag: element.get("cpuset") for element in root.findall("cputune/*")}
    assert pins == {"vcpupin": "2", "emulatorpin": "1,3", "iothreadpin": "1,3"}


def test_directories_and_the_user_s_disk_are_plugged_in_and_their_memory_is_shared(template: str) -> None:
    """The template knows nothing of either: its memory is ordinary."""
    shares = (("vtorque0", PLACE / "vtorque0.sock"), ("vtorque1", PLACE / "vtorque1.sock"))
    assert "memoryBacking" not in template
    text, plugged = clone_xml.xml_of_clone(template, xml_of(virtiofs=shares, data=PLACE / "data.sock"))
    root = parse(text)
    assert root.find("memoryBacking/access").get("mode") == "shared"  # type: ignore[union-attr]
    assert root.find("memoryBacking/source").get("type") == "memfd"  # type: ignore[union-attr]
    assert root.findall("devices/filesystem") == []
    found = [parse(one) for one in plugged]
    sockets = [one.find("source").get("socket") for one in found[:2]]  # type: ignore[union-attr]
    assert sockets == [str(place) for _tag, place in shares]
    assert found[2].find("source/host").get("socket") == str(PLACE / "data.sock")  # type: ignore[union-attr]
    assert found[2].find("target").get("dev") == "vdc"  # type: ignore[union-attr]


def test_template_has_a_free_port_for_each_device_that_its_guests_may_have() -> None:
    settings = NodeSettings(node_name="cn1", node_number=1)
    mounts = (Mount("virtiofs", "/srv/a", "/a", ""), Mount("nfs", "fs:/b", "/b", ""))
    shared = dataclasses.replace(settings, home_via="virtiofs", mounts=mounts)
    bare = dataclasses.replace(settings, home_via="nfs", mounts=())
    assert (clone_xml.count_ports(shared), clone_xml.count_ports(bare)) == (3, 1)
    root = parse(clone_xml.of_template(xml_of(), 3))
    ports = root.findall("devices/controller[@model='pcie-root-port']")
    devices = [one for tag in ("disk", "interface", "channel", "rng") for one in root.findall(f"devices/{tag}")]
    assert len(ports) == len(devices) + 3


def test_template_is_nobodys_and_on_no_network() -> None:
    text = clone_xml.of_template(render_xml(clone_xml.shape_of(SPEC), site_dir=None), 2)
    root = parse(text)
    assert root.find("metadata") is None
    assert read_facts(text, "running", False).mark is None
    (card,) = root.findall("devices/interface")
    assert card.get("type") == "ethernet"
    assert card.find("source") is None
    assert root.find("genid") is not None


def test_shape_is_the_same_for_all_guests_of_it() -> None:
    other = dataclasses.replace(
        SPEC, name="vcn1-2", uuid="x", job_id="9.fe", mac="52:54:00:00:01:02", tap="vtq2", cores="1", rank=3,
        disk=PLACE.with_name("vcn1-2") / "disk.qcow2", agent=pathlib.Path("/run/vtorque/agents/2"),
    )  # fmt: skip
    assert clone_xml.shape_of(SPEC) == clone_xml.shape_of(other)
    assert clone_xml.shape_of(SPEC) != clone_xml.shape_of(dataclasses.replace(SPEC, ram_mib=193))
