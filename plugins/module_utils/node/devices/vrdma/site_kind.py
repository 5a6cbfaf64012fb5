# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kind of RDMA devices guests of this node may have; the mother superior has checked the same before."""

from __future__ import annotations

from ....errors import UserFault
from ...state.settings import NodeSettings


def refuse_other_kind(node: NodeSettings, kind: str) -> None:
    """Check that guests of this node may have devices of a kind.

    Args:
        node: this one.
        kind: of the devices.

    Raises:
        UserFault: they may not.
    """
    if node.rdma_kind != kind:
        has = node.rdma_kind or "none"
        raise UserFault("vrdma=true", f"guests of {node.node_name} have no {kind} (RDMA here: {has})", "vrdma=false")
