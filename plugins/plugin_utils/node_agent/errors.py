# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one mapping of what goes wrong in `vtorque-node` to the error of its answer."""

from __future__ import annotations

from ...module_utils.errors import CANCELLED, VTorqueError
from ...module_utils.system.process import signals

ANSWERED = (Exception, signals.Terminated)
"""Whatever it is, the caller gets an answer."""


def error_of(problem: BaseException) -> VTorqueError:
    """Return the error that an answer names.

    Args:
        problem: one of `ANSWERED`.
    """
    if isinstance(problem, signals.Terminated):
        return VTorqueError(CANCELLED, f"by {problem}")
    if isinstance(problem, VTorqueError):
        return problem
    if isinstance(problem, OSError):
        return VTorqueError("this node could not do it", str(problem))
    return VTorqueError(f"a fault in vTorque itself: {type(problem).__name__}", str(problem))
