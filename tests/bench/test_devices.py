# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disks and cards that are measured, without a machine: what libvirt is told of them, and the arithmetic."""

from __future__ import annotations

import pathlib
import subprocess
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import DomainSpec, render_xml

from tests.bench import devices, iron
from tests.bench.site import Trouble

SPEC = DomainSpec(
    name="vcn1-1", uuid="6c7a3f2e-1d5b-4c8a-9e0f-112233445566", job_id="1.fe", start=1, owner="alice", rank=0,
    node="cn1", hypervisor="kvm", arch="x86_64", ram_mib=256, vcpus=2, disk=pathlib.Path("/g/disk.qcow2"),
    image=pathlib.Path("/i/disk.qcow2"), image_format="qcow2", seed=pathlib.Path("/g/seed.iso"),
    console=pathlib.Path("/g/console.log"), agent=pathlib.Path("/g/agent"), bridge="br0", tap="vtq1",
    mac="52:54:00:00:00:11",
)  # fmt: skip


def test_guest_of_the_measurement_has_a_disk_and_a_card_of_each_setting(tmp_path: pathlib.Path) -> None:
    """Behind its own, and in XML that libvirt's schema takes."""
    text = devices.template(devices.TEMPLATE.read_text(encoding="utf-8"))
    (tmp_path / devices.TEMPLATE.name).write_text(text, encoding="utf-8")
    xml = render_xml(SPEC, site_dir=tmp_path)
    root = ET.fromstring(xml)
    assert [disk.findtext("serial") for disk in root.iterfind("devices/disk")][2:] == list(devices.DISKS)
    assert len(root.findall("devices/interface")) == 1 + len(devices.CARDS)
    assert root.findtext("iothreads") == "1"
    (tmp_path / "domain.xml").write_text(xml, encoding="utf-8")
    done = subprocess.run(["virt-xml-validate", tmp_path / "domain.xml", "domain"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


def test_template_of_another_form_is_named() -> None:
    with pytest.raises(Trouble, match=r"domain\.xml\.j2 has not one"):
        devices.template("<domain/>")


def test_setting_is_held_against_the_plain_one_of_its_round() -> None:
    """Not against the median of all: other work may have slowed both."""
    lines = [
        "sync plain 2.0",
        "sync unsafe 1.0",
        "sync plain 4.0",
        "sync unsafe 1.0",
        "send plain 1.0",
        "send ring 2.0",
    ]
    assert devices.ratios(lines) == {"disk_unsafe_sync_ratio": [0.5, 0.25], "card_ring_send_ratio": [2.0]}


def test_every_figure_comes_from_a_line_of_the_probe() -> None:
    lines = [f"{work} {kind} 1.0" for work in devices.DISK_WORK for kind in devices.DISKS]
    lines += [f"{work} {kind} 1.0" for work in devices.CARD_WORK for kind in devices.CARDS]
    assert devices.ratios(lines).keys() == {figure.key for figure in devices.of_settings()}
    source = devices.SOURCE.read_text(encoding="utf-8")
    assert all(f'("{work}", name' in source for work in (*devices.DISK_WORK, *devices.CARD_WORK))


def test_every_figure_of_switches_is_one_of_bench_iron() -> None:
    found = {setting.name: [dict.fromkeys(iron.WORK, 1.0)] for setting in iron.SETTINGS}
    assert iron.ratios(found).keys() == {figure.key for figure in devices.of_switches()}


def test_words_of_an_error_are_no_figures() -> None:
    with pytest.raises(Trouble, match="the probe says: probe: /dev/vdc: No such file"):
        devices.ratios(["probe: /dev/vdc: No such file"])
