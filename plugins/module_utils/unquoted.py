# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What YAML makes of a name or a MAC address that stands there without quotes."""

from __future__ import annotations

import re

from .errors import VTorqueError
from .wire.messages import MAC

QUOTE_MAC = "write a MAC address in quotes"
_MAC_DIGITS = 12


def number_for_mac(value: object) -> str:
    """Why a value is no MAC address but a number, for people, or "".

    YAML 1.1 reads `52:54:00:00:01:03`, whose parts are all below 60, as a number of seconds, and Ansible makes text of
    it where text is due.  Such a number has 11 digits at most; 12 digits are a MAC address without separators.

    Args:
        value: what stands where a MAC address is due.
    """
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not re.fullmatch("[0-9]{1,20}", text) or len(text) == _MAC_DIGITS:
        return ""
    rest, parts = int(text), []
    for _place in range(5):
        rest, part = divmod(rest, 60)
        parts.append(f"{part:02d}")
    written = ":".join([f"{rest:02d}", *reversed(parts)])
    likely = f", as it reads {written} without quotes" if re.fullmatch(MAC, written) and rest else ""
    return f"is a number, which YAML makes of digits and colons{likely}"


def name_text(value: object) -> str:
    """A name that came as an option of a module; "" for none.

    Args:
        value: as Ansible read it, without making text of it: `12.10` is 12.1 to YAML 1.1, and `no` is false.

    Raises:
        VTorqueError: YAML made a number with a point, or true or false, of the name.
    """
    if isinstance(value, (bool, float)) or not isinstance(value, (str, int, type(None))):
        kind = "a text is due" if not isinstance(value, (bool, float)) else "YAML made this of a name without quotes"
        raise VTorqueError(f"name={str(value)[:40].lower()}", kind, "write the name in quotes: '12.10'")
    return "" if value is None else str(value)
