# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A verdict is done, read back, and told."""

from __future__ import annotations

import contextlib

from ...effects import leaves_nothing
from ...errors import SiteFault, VTorqueError
from ...frozen import frozen
from ...text import printable
from ..batch.api import NOTE_PREFIX, BatchSystem
from .decide import Action, Verdict

ONE_LINE = 160
"""Characters of a first line that holds the reason too."""


@frozen
class EnforcementResult:
    """What was done in the end, as the batch system says.

    Attributes:
        action: what became of the job; never a stronger one than the verdict's, unless the node did not go
            offline.
        offline: the node that is offline with our note, or "".
        failed: what could not be done, a line each.
    """

    action: Action
    offline: str = ""
    failed: tuple[str, ...] = ()


def enforce(verdict: Verdict, batch: BatchSystem, job_id: str, *, reason: str = "") -> EnforcementResult:
    """Do what was decided.

    A node that did not go offline would get the job again, so that the job is held; a job that was not held would run
    in circles, and one that was not queued again would be lost, so that it ends with the reason.

    Args:
        verdict: what was decided.
        batch: the batch system; its calls end in time.
        job_id: the job.
        reason: what failed, for the job's comment when it is held.

    Returns:
        What was done, read back.
    """
    offline, failed, action = "", [], verdict.action
    if verdict.offline:
        try:
            seen = batch.offline(verdict.offline, verdict.note)
            offline = seen.name if seen.offline and seen.note.startswith(NOTE_PREFIX) else ""
            if not seen.offline:
                failed.append(f"{seen.name} is not set offline: somebody else wrote a note meanwhile")
        except SiteFault as error:
            failed.append(f"{verdict.offline} is not set offline: {error}")
        if failed and action == Action.REQUEUE:
            action = Action.HOLD
    asking = {Action.REQUEUE: (batch.requeue, "queued again"), Action.HOLD: (batch.hold, "held")}
    if action in asking:
        ask, asked = asking[action]
        try:
            ask(job_id)
        except SiteFault as error:
            failed.append(f"the job cannot be {asked}: {error}")
            return EnforcementResult(Action.REFUSE, offline, tuple(failed))
    if action == Action.HOLD:
        with contextlib.suppress(SiteFault):  # a word more; the hold is what counts
            batch.comment(job_id, f"vtorque: held: {reason}")
    return EnforcementResult(action, offline, tuple(failed))


@leaves_nothing
def outcome(verdict: Verdict, enforced: EnforcementResult, release: str) -> tuple[str, ...]:
    """What became of node and job, a line each.

    Args:
        verdict: what was decided.
        enforced: what was done.
        release: the command that releases the job from a hold (`BatchSystem.release_command`).

    Returns:
        Printable lines.
    """
    lines = [*verdict.lines, *enforced.failed]
    if enforced.offline:
        lines.append(f"{enforced.offline} is set offline: {verdict.note}")
    if enforced.action == Action.REQUEUE:
        lines.append("the job is tried again")
    elif enforced.action == Action.HOLD:
        again = f" for {_times(verdict.of)}" if verdict.of and verdict.tried == verdict.of else ""
        lines.append(f"the job is held: {release} releases it{again}")
    return tuple(map(printable, lines))


def _times(tries: int) -> str:
    return "one more try" if tries == 1 else f"{tries} more tries"


@leaves_nothing
def message(error: VTorqueError, verdict: Verdict, lines: tuple[str, ...]) -> tuple[str, ...]:
    """What the job's owner reads in its error file when the job is tried again or held.

    Args:
        error: what failed.
        verdict: says which try it was.
        lines: what became of node and job (`outcome`).

    Returns:
        Printable lines, the first with `vtorque: ` before it.
    """
    tries = f" (try {verdict.tried} of {verdict.of})" if verdict.of else ""
    first, rest = f"{error.what}: {error.why}", [error.hint]
    if not error.why or len(first) > ONE_LINE:
        first, rest = error.what, [error.why, error.hint]
    text_lines = [f"vtorque: this job did not run: {first}{tries}", *(f"  {line}" for line in (*rest, *lines) if line)]
    return tuple(map(printable, text_lines))
