# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's policy, as `vtorque-node` reads it: once for all that it answers, and as far as it can be read."""

from __future__ import annotations

import typing as t

from ...module_utils.job.config import policy_file
from ...module_utils.job.config.parameters import Policy


def read_once(load: t.Callable[[], Policy] = policy_file.load) -> t.Callable[[], Policy]:
    """Return what gives the same policy each time, once it could be read."""
    found: list[Policy] = []

    def read() -> Policy:
        if not found:
            found.append(load())
        return found[0]

    return read


def read_usable(load: t.Callable[[], Policy]) -> Policy:
    """Return the site's policy as far as it can be read, for what must go on when the configuration is broken.

    Args:
        load: gives the site's policy.
    """
    policy, _broken = policy_file.load_usable(load)
    return policy
