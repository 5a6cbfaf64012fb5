# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The product on a node, as its installation leaves it."""

from __future__ import annotations

from .state import NodePlan


class SiteError(Exception):
    """The product could not be put onto the node."""


def install(plan: NodePlan) -> None:
    """Put the product onto this node."""
    raise SiteError("not written")
