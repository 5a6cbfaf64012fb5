# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a log that nobody else can forge."""

from __future__ import annotations

import time

from ..effects import leaves_nothing
from ..text import printable

MORE = "  | "
"""Before each further line of what is said at one time: none but the first can look as if it had a time."""


@leaves_nothing
def log_line(text: str) -> bytes:
    """A line of a log, with the time before it; of a text of several lines (a traceback) the others are marked.

    All that is said in a log goes through here: much of it holds words of users, of guests and of other nodes.

    Args:
        text: of any characters; those that do not print become `?`, and tabs blanks.

    Returns:
        One line or several, the last ended.
    """
    lines = [printable(line.expandtabs()) for line in text.rstrip("\n").split("\n")]
    text = f"\n{MORE}".join(lines)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n".encode(errors="replace")
