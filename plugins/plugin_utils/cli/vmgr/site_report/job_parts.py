# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a record has of a job's time and energy: pure functions."""

from __future__ import annotations

import dataclasses

from .....module_utils.job.records.job_record import JobRecord
from .....module_utils.job.records.timeline_svg import guest_bars


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A part of a job's time.

    Attributes:
        kind: `prepare`, a phase of the slowest guest, `finish`, `run` or `end`.
    """

    kind: str
    seconds: float


def pieces_of(record: JobRecord) -> tuple[Piece, ...]:
    """Return where the time of a job went, one part behind the other.

    Args:
        record: of the start; one without a prologue gives none.
    """
    phases = record.phases
    if "prologue" not in phases:
        return ()
    begin, start_s = phases["prologue"]
    pieces = _start_pieces(record, begin, begin + start_s)
    if "epilogue" in phases:
        end, end_s = phases["epilogue"]
        pieces += [Piece("run", max(0.0, end - begin - start_s)), Piece("end", end_s)]
    return tuple(piece for piece in pieces if piece.seconds > 0)


def _start_pieces(record: JobRecord, begin: float, end: float) -> list[Piece]:
    """What the start waited for: the phases of the guest whose node answered last."""
    phases = record.phases
    answers = [
        (sum(phases[f"present.{guest.node}"]), guest) for guest in record.guests if f"present.{guest.node}" in phases
    ]
    if not answers:
        return [Piece("prepare", end - begin)]
    answered, guest = max(answers, key=lambda one: one[0])
    answered = min(max(answered, begin), end)
    bars = [one for one in guest_bars(guest.seconds, answered) if one.begin_s >= begin]
    first = bars[0].begin_s if bars else answered
    return [
        Piece("prepare", first - begin),
        *(Piece(one.kind, one.seconds) for one in bars),
        Piece("finish", end - answered),
    ]
