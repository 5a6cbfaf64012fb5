# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work on hosts that stay bare, loaded by the first that comes to such a host: most nodes never do."""

from __future__ import annotations

import types

from ...effects import leaves_nothing


@leaves_nothing
def load_bare_host() -> types.ModuleType:
    """Return `bare_host`."""
    from . import bare_host  # 3 ms that only nodes of mixed jobs pay

    return bare_host
