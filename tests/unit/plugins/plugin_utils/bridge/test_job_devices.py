# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices of a node the batch system has given to a job."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.answers import parse_exec_gpus
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import pci
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.job_devices import with_granted

from .test_planning import JOB

NODE = NodeSettings(
    "gn1", 1,
    pci_classes=(pci.read_line("gpu 0000:3b:00.0 0000:5e:00.0 resource=gpus"), pci.read_line("nic 0000:81:00.0")),
)  # fmt: skip


def granted(*given: str) -> list[tuple[str, ...] | None]:
    return [one.granted for one in with_granted(dataclasses.replace(JOB, granted=given), NODE).pci_classes]


def test_index_of_the_server_is_the_place_in_the_sites_list() -> None:
    assert granted("gn1.site/gpus/1", "gn2/gpus/0", "gn1/mics/0") == [("0000:5e:00.0",), None]


def test_job_that_was_given_none_has_none() -> None:
    assert granted() == [(), None]


def test_index_beyond_the_list_is_fault_of_site() -> None:
    with pytest.raises(SiteFault, match="class gpu lists 2 devices there"):
        granted("gn1/gpus/2")


@pytest.mark.parametrize(("text", "found"), [
    ("", ()),
    ("cn1-gpu/0+cn1-gpu/1+cn-2-gpu/0", ("cn1/gpus/0", "cn1/gpus/1", "cn-2/gpus/0")),
    ("cn1-gpu/0-1,3", ("cn1/gpus/0", "cn1/gpus/1", "cn1/gpus/3")),
])  # fmt: skip
def test_exec_gpus_of_torque_is_read(text: str, found: tuple[str, ...]) -> None:
    assert parse_exec_gpus(text) == found


@pytest.mark.parametrize("text", ["cn1/0", "cn1-gpu", "cn1-gpu/x", "cn1-gpu/3-1", "-gpu/0"])
def test_exec_gpus_of_another_form_is_fault_of_site(text: str) -> None:
    with pytest.raises(SiteFault, match=r"exec_gpus|exec_host"):
        parse_exec_gpus(text)
