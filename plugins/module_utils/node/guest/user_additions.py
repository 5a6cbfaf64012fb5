# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user adds to their guests is made in them: packages by their root, then files and commands by themselves.

It came to the guest in its seed; this is the word to begin.  The guest's side is `templates/guest/additions.sh`.
"""

from __future__ import annotations

import shlex

from ...errors import SiteFault, UserFault, VTorqueError
from ...system.clock import Deadline
from ...time_budget import ADDITIONS_RESERVE_S
from ..state.guest_file import GuestFile
from ..state.settings import NodeSettings
from .agent import OrderResult, order_all
from .join import channel_to, guests_of

HAS = "additions"
"""In a guest's directory, when its seed holds some."""
PROGRAM = "/usr/lib/vtorque/additions"
SITES = 91
"""Exit status of the guest's program: the site's fault; any other is the user's."""
LATE = (124, 137, 143)
"""It was ended from outside (programs called timeout disagree about it)."""
TOLD = 400
"""Characters of what the user's commands wrote last that a message repeats."""


def make(job_id: str, start: int, settings: NodeSettings, deadline: Deadline) -> None:
    """Have it made in this node's guests of a start, all at the same time.

    Args:
        job_id: of the job.
        start: its start_count.
        settings: NodeSettings of this node.
        deadline: when all must be done.

    Raises:
        UserFault: something did not go well in one; with the last of its output.
        SiteFault: a package could not be fetched or installed.
        VTorqueError: a guest does not answer.
    """
    directory = settings.start_dir(job_id, start)
    guests = [guest for guest in guests_of(job_id, start, settings) if (directory / guest.name / HAS).exists()]
    if not guests:
        return
    seconds = max(1, int(deadline.left_s(86_400.0)) - ADDITIONS_RESERVE_S)
    orders = [
        (channel_to(guest, settings), format_additions_order(job_id, guest, settings, seconds)) for guest in guests
    ]
    faults = [_fault(name, done) for name, done in order_all(orders, deadline).items() if done.status != 0]
    if faults:  # what the user can mend ends the job; the rest would only be tried again
        raise next((fault for fault in faults if isinstance(fault, UserFault)), faults[0])


def format_additions_order(job_id: str, guest: GuestFile, settings: NodeSettings, seconds: int) -> str:
    """What the guest's root runs."""
    variables = {**settings.variables_of(job_id), "VTORQUE_RANK": str(guest.rank)}
    variables["VTORQUE_PASSED_ON"] = " ".join(variables)
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"{exports}exec {PROGRAM} {seconds}\n"


def _fault(name: str, done: OrderResult) -> VTorqueError:
    what = f"metadata in guest {name}"
    *before, last_line = [line for line in done.output.splitlines() if line.strip()] or [""]
    if done.status in LATE:
        return UserFault(what, "was not done in time", _tail([*before, last_line]))
    if done.status == SITES:
        return SiteFault(what, last_line, "do guests reach their package sources (guest_may_reach)?")
    return UserFault(what, last_line or f"ended with status {done.status}", _tail(before))


def _tail(lines: list[str]) -> str:
    tail = " | ".join(lines[-5:])[-TOLD:].strip(" |")
    return f"its last lines: {tail}" if tail else ""
