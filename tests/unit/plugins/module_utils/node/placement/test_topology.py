# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What libvirt says of a node's cores, and what is read of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.topology import Core, read_topology

TWO_CELLS = """<capabilities><host><topology><cells num='2'>
<cell id='1'><memory unit='KiB'>4194304</memory><pages unit='KiB' size='4'>1048576</pages>
 <distances><sibling id='0' value='21'/><sibling id='1' value='10'/></distances>
 <cpus num='2'><cpu id='2' socket_id='1' die_id='0' core_id='0' siblings='2'/><cpu id='9'/></cpus></cell>
<cell id='0'><memory unit='KiB'>2097152</memory><pages unit='KiB' size='4'>524288</pages>
 <pages unit='KiB' size='2048'>100</pages>
 <distances><sibling id='0' value='10'/><sibling id='1' value='21'/></distances>
 <cpus num='4'><cpu id='0' socket_id='0' die_id='0' core_id='0' siblings='0,4'/>
 <cpu id='1' socket_id='0' die_id='0' core_id='1' siblings='1,5'/>
 <cpu id='4' socket_id='0' die_id='0' core_id='0' siblings='0,4'/>
 <cpu id='5' socket_id='0' die_id='0' core_id='1' siblings='1,5'/></cpus></cell>
</cells></topology><cache><bank id='0' level='2' type='both' size='1' unit='MiB' cpus='0,4'/>
<bank id='0' level='3' type='both' size='8' unit='MiB' cpus='0,4'/>
<bank id='1' level='3' type='both' size='8' unit='MiB' cpus='1,5'/></cache></host></capabilities>"""


def test_read_topology_of_two_cells_gives_cores_caches_pages_and_distances() -> None:
    first, second = read_topology(ET.fromstring(TWO_CELLS)).cells
    assert (first.number, first.memory_mib, first.pages, first.distances) == (
        0, 2048, {4: 524288, 2048: 100}, {0: 10, 1: 21},
    )  # fmt: skip
    assert first.cores == (Core((0, 4), 0, 0), Core((1, 5), 0, 1))
    assert second.cores == (Core((2,), 1, -1),)


def test_read_topology_leaves_out_what_is_switched_off() -> None:
    assert read_topology(ET.fromstring(TWO_CELLS)).threads == {0, 1, 2, 4, 5}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("siblings='2'", "siblings='x'"),
        ("<cell id='1'>", "<cell>"),
        ("<memory unit='KiB'>4194304", "<memory unit='MiB'>4096"),
        ("<memory unit='KiB'>4194304", "<memory unit='KiB'>much"),
        ("socket_id='1'", ""),
        ("level='2'", ""),
    ],
)
def test_read_topology_of_another_form_is_the_nodes_fault(old: str, new: str) -> None:
    with pytest.raises(NodeFault, match="unknown form"):
        read_topology(ET.fromstring(TWO_CELLS.replace(old, new)))


def test_read_topology_without_processors_is_the_nodes_fault() -> None:
    with pytest.raises(NodeFault, match="no processor"):
        read_topology(ET.fromstring("<capabilities><host/></capabilities>"))
