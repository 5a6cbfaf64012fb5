# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom guests may speak to is found, or the site's fault."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import reachable
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network.reachable import Reach
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline


def test_whom_the_site_names_is_found_by_name_address_and_network() -> None:
    site = NodeSettings("cn1", 1, may_reach=("10.2.0.0/16", "10.2.7.7", "localhost"))
    whom = reachable.reach(site, "10.77.0.11", ("10.77.0.1",), Deadline.after(20))
    assert whom == Reach("10.77.0.11", ("10.77.0.1",), (), (), ("10.2.0.0/16", "127.0.0.1"))


def test_name_without_an_address_is_the_sites_fault() -> None:
    site = NodeSettings("cn1", 1, may_reach=("nobody.invalid",))
    with pytest.raises(SiteFault, match=r"the address of nobody\.invalid: is not known here"):
        reachable.reach(site, "10.77.0.11", (), Deadline.after(20))


def test_host_with_ipv6_alone_is_the_sites_fault() -> None:
    """Confined guests speak none: a mount that hangs would tell nobody why."""
    site = NodeSettings("cn1", 1)
    for node, servers, what in (
        ("10.77.0.11", ("[fd00::1]",), r"guests are to reach \[fd00::1\], an IPv6 address"),
        ("fd00::11", (), "bridge br0 has no IPv4 address"),
    ):
        with pytest.raises(SiteFault, match=f"{what}: confined guests speak IPv4 alone"):
            reachable.reach(site, node, servers, Deadline.after(20))
