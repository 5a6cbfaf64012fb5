# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a site has the commands of its batch system."""

from __future__ import annotations

import pathlib
import typing as t

from ...config.batch_systems import facts_of

if t.TYPE_CHECKING:
    from ...config.parameters import Policy


def commands_directory(policy: Policy, *, front_end: bool = False) -> pathlib.Path:
    """Return the directory of the batch system's commands.

    Args:
        policy: the site's.
        front_end: whether it is for a host that uses pbs_qsub_on_fe, not pbs_qsub_on_nodes.
    """
    parameter = facts_of(policy.batch_system).commands_parameter
    if parameter and (directory := getattr(policy, parameter)) is not None:
        return pathlib.Path(directory)
    return pathlib.Path(policy.pbs_qsub_on_fe if front_end else policy.pbs_qsub_on_nodes).parent
