# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Security updates of this node's guests, before the job: bounded in time, and never a reason not to run it.

The guest's side is `templates/guest/updates.sh`.  cloud-init's `package_upgrade` is not used: it takes all packages,
has no time limit, and runs in a stage that fast images leave out.
"""

from __future__ import annotations

import re
import time

from ...errors import VTorqueError
from ...rendering.templates import render
from ...system.clock import Deadline
from ...text import printable
from ...time_budget import UPDATES_ANSWER_S, UPDATES_LEAST_S, UPDATES_RESERVE_S
from ...wire.update_result import DONE, FAILED, OUTCOMES, TIMED_OUT, WORDS, GuestUpdates
from ..state.settings import NodeSettings
from .agent import OrderResult, order_all
from .join import channel_to, with_channel

TEMPLATE = "guest/updates.sh"
LATE = (124, 137, 143)
"""It was ended from outside (programs called timeout disagree about it)."""
_LAST = re.compile(rf"vtorque-updates ({'|'.join(OUTCOMES)}) ([0-9]{{1,5}}) ([0-9]{{1,5}})( .*)?")


def install(job_id: str, start: int, settings: NodeSettings, deadline: Deadline) -> tuple[GuestUpdates, ...]:
    """Have them installed in this node's guests of a start, all at the same time.

    Args:
        job_id: of the job.
        start: its start_count.
        settings: NodeSettings of this node; holds the seconds that they may take.
        deadline: of the prologue; some of what is left is not touched.

    Returns:
        What became of them in each guest whose root hears us; nothing where the site wants none.

    Raises:
        SiteFault: the site's template is wrong.
    """
    if not settings.updates_s:
        return ()
    guests = with_channel(job_id, start, settings)
    seconds = min(settings.updates_s, int(deadline.left_s(86_400.0)) - UPDATES_RESERVE_S - UPDATES_ANSWER_S)
    if seconds < UPDATES_LEAST_S:
        reason = "the prologue had no time left for them"
        return tuple(GuestUpdates(guest.name, TIMED_OUT, 0, 0.0, reason) for guest in guests)
    program = render(TEMPLATE, site_dir=settings.template_dir, compiled=settings.compiled_dir)
    orders = [(channel_to(guest, settings), f"set -- {seconds}\n{program}") for guest in guests]
    began = time.monotonic()
    try:
        done = order_all(orders, Deadline.after(seconds + UPDATES_ANSWER_S))
    except VTorqueError as error:  # what comes next asks the same guests, and tells whose fault their silence is
        took = round(time.monotonic() - began, 1)
        return tuple(GuestUpdates(guest.name, FAILED, 0, took, printable(str(error)[:WORDS])) for guest in guests)
    return tuple(_read(name, one, round(time.monotonic() - began, 1)) for name, one in done.items())


def _read(name: str, done: OrderResult, took_s: float) -> GuestUpdates:
    """What a guest's root says; in its last line."""
    *_before, last = done.output.splitlines() or [""]
    if found := _LAST.fullmatch(last):
        outcome, count, seconds, reason = found.groups()
        reason = "" if outcome == DONE else (reason or "").strip()[:WORDS]
        return GuestUpdates(name, outcome, int(count), min(float(seconds), took_s), reason)
    if done.status in LATE:
        return GuestUpdates(name, TIMED_OUT, 0, took_s, "it was ended, and told nothing")
    return GuestUpdates(name, FAILED, 0, took_s, f"ended with status {done.status}: {last}"[:WORDS])
