# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a qemu may take, and what must be there for it."""

from __future__ import annotations

import dataclasses

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import memory
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages

KEY = messages.KeyPair("x", "y")
SPEC = messages.GuestSpec(
    rank=0, index=0, image="tiny", distro="debian", arch="x86_64", vcpus=4, ram_mib=6400, hypervisor="kvm",
    fs_type="sharedfs", host_key=KEY, authorized_key=KEY.public,
)  # fmt: skip
OVERHEAD = 256 + 4 * 8 + 100


def test_guest_may_have_its_memory_and_what_the_job_asked_for_besides() -> None:
    assert memory.limit_mib(SPEC, 2048) == 6400 + 2048


def test_site_that_keeps_little_for_the_host_does_not_end_healthy_guests() -> None:
    assert memory.limit_mib(SPEC, 0) == 6400 + OVERHEAD
    emulated = dataclasses.replace(SPEC, hypervisor="qemu")
    assert memory.limit_mib(emulated, 0) == 6400 + OVERHEAD + 1024


def test_host_keeps_its_share_or_what_the_hypervisor_needs() -> None:
    assert memory.reserved_memory((SPEC,), 2048) == (2048, "the host")
    assert memory.reserved_memory((SPEC, SPEC), 0) == (2 * OVERHEAD, "the hypervisor")


def test_node_has_memory() -> None:
    assert memory.node_mib() > 100
