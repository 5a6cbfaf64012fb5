# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`pci=` of a request against the site's list of devices."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.request_devices import (
    find_faults,
    wishes_for_wire,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.pci import DeviceWish

SITE = dataclasses.replace(
    Policy(),
    pci_classes=("gpu 0000:3b:00.0 0000:5e:00.0 hosts=gn.*", "gpu 0000:3b:00.0 hosts=cn.*", "nic 0000:81:00.0"),
)


def faults(*wishes: str, guests: int = 1, policy: Policy = SITE) -> list[str]:
    return [str(fault) for fault in find_faults({"pci": wishes, "vms_per_node": guests}, "job.sh", policy)]


@pytest.mark.parametrize("wishes", [("gpu:2",), ("0000:3b:00.0", "nic:1"), ("3b:00.0",)])
def test_request_that_a_host_can_give_passes(wishes: tuple[str, ...]) -> None:
    assert faults(*wishes) == []


@pytest.mark.parametrize(("wishes", "sentence"), [
    (("fpga:1",), "this site has no such class; it has gpu, nic"),
    (("0000:01:00.0",), "this site hands no device of that address to guests"),
    (("gpu:3",), "no host of this site has more than 2"),
    (("nic:1", "gpu:9"), "no host of this site has more than 2"),
])  # fmt: skip
def test_request_that_no_host_can_give_is_refused(wishes: tuple[str, ...], sentence: str) -> None:
    [found] = faults(*wishes)
    assert sentence in found


def test_request_counts_all_guests_of_a_host() -> None:
    assert faults("gpu:1", guests=2) == []
    [found] = faults("gpu:2", guests=2)
    assert "2 guests on a host want 2 each: no host of this site has more than 2" in found
    [found] = faults("0000:3b:00.0", guests=2)
    assert "cannot have the same device" in found


def test_site_that_lists_nothing_refuses_all() -> None:
    [found] = faults("gpu:1", policy=Policy())
    assert "this site hands no devices to guests (pci_classes)" in found


def test_nodes_learn_which_devices_a_job_counts() -> None:
    found = wishes_for_wire(("gpu:2", "81:00.0", "5e:00.0"), SITE)
    assert found == (DeviceWish("gpu", 2, True), DeviceWish("0000:81:00.0"), DeviceWish("0000:5e:00.0", 1, True))
    assert wishes_for_wire(None, SITE) == ()
