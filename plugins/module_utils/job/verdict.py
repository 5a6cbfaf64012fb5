# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of a start that failed."""

from __future__ import annotations

from ..errors import ImageFault, UserFault, VTorqueError
from ..records import RefusalRecord

OF_THE_JOB = (UserFault.fault, ImageFault.fault)


def decide_verdict(error: VTorqueError, *, job_id: str, start: int, node: str) -> RefusalRecord:
    """Decide what is done about a failed start: the one place where that is decided.

    A fault of the job (its request, its image) ends the job with the reason.  So does every other fault for the time
    being, with words that say that it is not the job's; holding the job and setting the node offline come here.

    Args:
        error: what failed.
        node: where the hook ran.
    """
    if error.fault in OF_THE_JOB:
        hint = error.hint
    else:
        where = f"this is not a fault of the job: tell the administrator that it failed on {node}"
        hint = f"{error.hint}; {where}" if error.hint else where
    return RefusalRecord(job_id=job_id, start=start, fault=error.fault, what=error.what, why=error.why, hint=hint)
