# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of `pci_classes`, and what users ask for."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import pci


@pytest.mark.parametrize("line", [
    "gpu 0000:3b:00.0 0000:5e:00.0",
    "gpu 0000:3b:00.0 hosts=gn[0-9]+ resource=gpus reset=any numa=required",
    "fast 0000:3b:00.0 kind=nic",
    "nic 0000:3b:00.0 kind=any",
    "vgpu 3b33ef89-55f0-47d0-bcf7-e06aa1dd1806 resource=gpus kind=mdev",
    "mdev 3b33ef89-55f0-47d0-bcf7-e06aa1dd1806 kind=mdev",
])  # fmt: skip
def test_line_that_is_read_is_written_as_it_was(line: str) -> None:
    assert pci.format_line(pci.read_line(line)) == line


def test_line_has_defaults_that_protect_the_next_job() -> None:
    found = pci.read_line("gpu 3B:00.0")
    assert (found.addresses, found.kind, found.reset, found.numa) == (("0000:3b:00.0",), "gpu", True, False)


@pytest.mark.parametrize(("line", "sentence"), [
    ("", "a line `class"),
    ("GPU 0000:3b:00.0", "a line `class"),
    ("gpu", "from 1 to 64 addresses"),
    ("gpu 0000:3b:00.0 3b:00.0", "each of them once"),
    ("gpu 10de:2204", "not an address"),
    ("gpu 0000:3b:00.8", "not an address"),
    ("gpu 0000:3b:20.0", "not an address"),
    ("gpu 0000:3b:00.0 hosts=[", "no regular expression"),
    ("gpu 0000:3b:00.0 color=red", "no such option"),
    ("gpu 0000:3b:00.0 reset=never", "no such option"),
    ("gpu 3b33ef89-55f0-47d0-bcf7-e06aa1dd1806", "kind=mdev takes it"),
    ("vgpu 0000:3b:00.0 kind=mdev", "not the UUID of a mediated device"),
])  # fmt: skip
def test_line_of_another_form_is_refused(line: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".+") as error:
        pci.read_line(line)
    assert sentence in str(error.value)


@pytest.mark.parametrize(("line", "has_gpus"), [
    ("gpu 0000:3b:00.0", True), ("nic 0000:3b:00.0", False),
    ("vgpu 3b33ef89-55f0-47d0-bcf7-e06aa1dd1806 kind=mdev resource=gpus", True),
    ("vgpu 3b33ef89-55f0-47d0-bcf7-e06aa1dd1806 kind=mdev", False),
])  # fmt: skip
def test_parts_of_gpus_count_as_gpus_where_the_batch_system_counts_them(line: str, has_gpus: bool) -> None:
    assert pci.read_line(line).has_gpus == has_gpus


def test_host_has_the_first_line_of_a_name_that_fits_it() -> None:
    lines = ["gpu 0000:01:00.0 hosts=gn1", "gpu 0000:02:00.0 hosts=gn.*", "nic 0000:03:00.0"]

    def found(host: str) -> list[str]:
        return [f"{one.name} {one.addresses[0][5:7]}" for one in pci.classes_on(lines, host)]

    assert found("GN1.site") == ["gpu 01", "nic 03"]
    assert found("gn2") == ["gpu 02", "nic 03"]
    assert found("cn1") == ["nic 03"]


@pytest.mark.parametrize(("text", "wish"), [
    ("gpu:2", pci.DeviceWish("gpu", 2)), ("3b:00.0", pci.DeviceWish("0000:3b:00.0")),
    ("0001:3b:00.0", pci.DeviceWish("0001:3b:00.0")),
])  # fmt: skip
def test_wish_is_read(text: str, wish: pci.DeviceWish) -> None:
    assert pci.read_wish(text) == wish
