# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How `vtorque-node` reads the site's policy."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import policy_reader


def test_the_policy_is_read_once_and_again_while_it_cannot_be() -> None:
    said: list[Policy | SiteFault] = [SiteFault("vtorque.yml", "half written"), Policy(bridge="br7")]

    def load() -> Policy:
        one = said.pop(0)
        if isinstance(one, SiteFault):
            raise one
        return one

    read = policy_reader.read_once(load)
    with pytest.raises(SiteFault, match="half written"):
        read()
    assert [read().bridge, read().bridge] == ["br7", "br7"]
