# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a function or class says of its effects, at itself, for the tests of faults.

Those tests make each call in the modules that they look at fail, unless the callee leaves nothing
(docs/developer/testing.md).  The mark changes nothing when a program runs.
"""

from __future__ import annotations

import typing as t

T = t.TypeVar("T", bound=t.Callable[..., t.Any])
MARK = "_leaves_nothing"


def leaves_nothing(callee: T) -> T:
    """Mark a function, or a class with all its methods, that computes, reads or asks, and changes nothing.

    What goes with the process (its descriptors, its memory) is nothing.  A function that writes, deletes, starts or
    ends anything else must not be marked: no fault would be tried at its calls.

    Args:
        callee: stands below `staticmethod`, `classmethod`, `property` and `dataclass`.

    Returns:
        The same object.
    """
    setattr(callee, MARK, True)
    return callee
