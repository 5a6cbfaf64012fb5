# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""exec_host as servers of Torque and OpenPBS write it: parts joined by `+`, each a host and its slots."""

from __future__ import annotations

import re
import typing as t

from ....errors import SiteFault

MAX_SLOTS = 1 << 20


def read_slots(
    text: str, part: re.Pattern[str], form: str, count: t.Callable[[str | None], t.Iterable[int]]
) -> tuple[str, ...]:
    """Return one host name per slot, in the server's order.

    Args:
        text: as the server writes it; "" before the job was started.
        part: fits one part; has the groups `host` and `slots`.
        form: how a message calls that form.
        count: returns the numbers of slots that the group `slots` names.

    Raises:
        SiteFault: another form, or more slots than a host can have; what it means would be a guess.
    """
    slots: list[str] = []
    for one in text.split("+") if text else ():
        found = part.fullmatch(one)
        if not found:
            raise SiteFault(f"exec_host {text[:80]!r}", f"{one[:80]!r} is not of the form {form}")
        for number in count(found["slots"]):
            if not 0 < number <= MAX_SLOTS - len(slots):
                raise SiteFault(f"exec_host {text[:80]!r}", f"{one[:80]!r} holds {number} slots")
            slots += [found["host"]] * number
    return tuple(slots)
