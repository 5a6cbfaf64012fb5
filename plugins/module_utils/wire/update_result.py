# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of a guest's security updates: the result that a node reports to the job."""

from __future__ import annotations

import dataclasses
import typing as t

from ..frozen import frozen
from .messages import HOST_NAME

DONE, TIMED_OUT, FAILED = OUTCOMES = ("done", "timed out", "failed")
WORDS = 300
"""Characters of why it did not all go well."""


def _text(pattern: str) -> t.Any:
    return dataclasses.field(metadata={"pattern": pattern})  # pylint: disable=invalid-field-call


def _number(high: int) -> t.Any:
    return dataclasses.field(metadata={"low": 0, "high": high})  # pylint: disable=invalid-field-call


@frozen
class GuestUpdates:
    """The security updates of one guest; untrusted where it arrives.

    Attributes:
        name: host name of the guest.
        outcome: one of `OUTCOMES`.
        packages: so many were installed.
        seconds: that it took.
        reason: why it did not all go well, or "".
    """

    name: str = _text(HOST_NAME)
    outcome: str = _text("|".join(OUTCOMES))
    packages: int = _number(100_000)
    seconds: float = _number(86_400)
    reason: str = _text(rf"[^\x00-\x1f\x7f]{{0,{WORDS}}}")

    def to_record(self) -> dict[str, str | float]:
        """As a record holds it."""
        facts: dict[str, str | float] = {"outcome": self.outcome, "packages": self.packages, "seconds": self.seconds}
        return {**facts, "reason": self.reason} if self.reason else facts


def format_outcome(outcome: str, packages: float | None, seconds: float | None) -> str:
    """An outcome for people: `done, 3 packages in 12 s`; as far as it is known."""
    if not outcome or packages is None:
        return outcome
    took = f" in {seconds:.0f} s" if seconds is not None else ""
    return f"{outcome}, {packages:.0f} package{'' if packages == 1 else 's'}{took}"
