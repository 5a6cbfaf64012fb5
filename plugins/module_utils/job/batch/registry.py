# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch systems that vTorque knows, opened by name."""

from __future__ import annotations

import typing as t

from ...effects import leaves_nothing
from ...system.clock import Deadline

if t.TYPE_CHECKING:
    from ..config.parameters import Policy
from .api import BatchSystem


@leaves_nothing
def open_batch(
    policy: Policy, *, front_end: bool = False, timeout_s: float = 10.0, deadline: Deadline | None = None
) -> BatchSystem:
    """The site's batch system.

    Args:
        policy: says where its commands are (the directory of the site's qsub).
        front_end: are we on a host that uses PBS_QSUB_ON_FE, not PBS_QSUB_ON_NODES?
        timeout_s: seconds that any one command may take.
        deadline: when all of them must be done, if there is such a moment.

    Returns:
        Ready to be asked; nothing was asked yet.
    """
    import pathlib

    from .torque.adapter import Torque

    qsub = policy.pbs_qsub_on_fe if front_end else policy.pbs_qsub_on_nodes
    return Torque(pathlib.Path(qsub).parent, timeout_s=timeout_s, deadline=deadline)
