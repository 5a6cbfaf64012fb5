# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages a user may add to guests: those of the site's list, checked by every node again."""

from __future__ import annotations

from ...errors import SiteFault
from ...wire.messages import Additions
from ..config.parameters import Policy
from ..request.keys import ADDITIONS
from ..request.value_types import format_value


def check_packages(additions: Additions, policy: Policy) -> None:
    """Check that the packages are on the site's list.

    Args:
        additions: as another node has read them.
        policy: the site's, on this one.

    Raises:
        SiteFault: one is not, and was on the mother superior's; all of them are named.
    """
    strange = [package.name for package in additions.packages if package.name not in policy.metadata_packages]
    if strange:
        raise SiteFault(
            f"{ADDITIONS}: {', '.join(strange)}", not_allowed(policy), "metadata_packages is the same on all nodes"
        )


def not_allowed(policy: Policy) -> str:
    """Return why a package that is not on the site's list cannot be had."""
    if not policy.metadata_packages:
        return "not allowed: this site lets users name no packages"
    return f"not on the site's list: {format_value(', '.join(policy.metadata_packages), 300)}"
