# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the seconds of a boot went, out of what a guest told."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import ImageFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial.boot_profile import (
    SHOWN_OTHERS,
    Profile,
    phase_of,
    profile_of,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial.report import TrialObservations, report_of
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.images import boot_picture

TOLD = (
    "begun 9.31", "up 21.00", "sshd /usr/sbin/sshd", "unit 4.2s systemd-udev-trigger.service",
    "mark initramfs 1.250", "mark userspace 2.500",
    "span systemd-udev-trigger.service 3.000 7.200", "span cloud-init-local.service 7.500 14.000",
    "span networking.service 14.000 15.500", "span ssh.service 16.000 17.250", "span tiny.service 3.000 3.010",
    *(f"span other{number}.service 4.000 {5 + number}.000" for number in range(9)),
    "span wrong", "span x y z", "end",
)  # fmt: skip


def profile(*report: str, seconds: float = 22.0, **more: str) -> Profile:
    seen = TrialObservations(seconds, lines=report, **more)
    return profile_of(seen, report_of(seen))


def test_each_phase_stands_where_it_was() -> None:
    """The guest's clock begins with its kernel: what was before that is the firmware's, and all else is later by it."""
    found = {span.what: (span.phase, round(span.begin_s, 3), round(span.seconds, 3)) for span in profile(*TOLD).spans}
    assert [found.pop(f"other{number}.service")[0] for number in range(8, 8 - SHOWN_OTHERS, -1)] == ["others"] * 6
    assert found == {
        "firmware": ("firmware", 0.0, 1.0),
        "kernel": ("kernel", 1.0, 1.25),
        "initramfs": ("initramfs", 2.25, 1.25),
        "systemd": ("others", 3.5, 0.5),
        "systemd-udev-trigger.service": ("udev", 4.0, 4.2),
        "cloud-init-local.service": ("cloud-init local", 8.5, 6.5),
        "networking.service": ("network", 15.0, 1.5),
        "ssh.service": ("ssh", 17.0, 1.25),
    }
    begins = [span.begin_s for span in profile(*TOLD).spans]
    assert begins == sorted(begins)


def test_kernel_without_a_first_file_system_has_none() -> None:
    report = [line for line in TOLD if not line.startswith("mark initramfs")]
    found = {span.what: span.seconds for span in profile(*report).spans}
    assert "initramfs" not in found
    assert found["kernel"] == 2.5


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ([line for line in TOLD if not line.startswith("mark ")], "does not tell when it did what"),
        (["begun 9.31"], "cloud-init has begun, and the system did not become ready"),
        ([], "it was not up after 22 s"),
    ],
)
def test_guest_without_figures_has_no_profile(report: list[str], why: str) -> None:
    with pytest.raises(ImageFault, match=why):
        profile(*report)


@pytest.mark.parametrize(
    ("unit", "phase"),
    [
        ("systemd-udevd.service", "udev"), ("systemd-udev-settle.service", "udev"), ("ifup@eth0.service", "network"),
        ("NetworkManager-wait-online.service", "network"), ("systemd-networkd.socket", "network"),
        ("sshd.service", "ssh"), ("ssh.socket", "ssh"), ("sshd-keygen@ed25519.service", "ssh"),
        ("cloud-init.service", "cloud-init network"), ("cloud-init-network.service", "cloud-init network"),
        ("cloud-final.service", "cloud-init final"), ("sshguard.service", "others"), ("snapd.service", "others"),
    ],
)  # fmt: skip
def test_units_belong_to_phases_by_their_names(unit: str, phase: str) -> None:
    assert phase_of(unit) == phase


def test_picture_has_a_bar_for_each_in_its_place() -> None:
    svg = ET.fromstring(boot_picture.draw(profile(*TOLD), "boot of debian12@1"))
    names = {"svg": "http://www.w3.org/2000/svg"}
    bars = svg.findall(".//svg:g[@class='phase']/svg:rect", names)
    assert len(bars) == len(profile(*TOLD).spans)
    starts = [float(piece.get("x", "0")) for piece in bars]
    assert starts == sorted(starts)
    assert svg.findtext("svg:title", namespaces=names) == "boot of debian12@1"
    assert len({piece.get("fill") for piece in bars}) == 8
