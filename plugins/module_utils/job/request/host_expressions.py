# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expressions for whole names of hosts, as parameters have them (`regex_fe`, `vrdma_nodes`)."""

from __future__ import annotations

import re

from .value_types import BadValue, Kind


def host_pattern() -> Kind:
    """Return the kind of an expression that whole names of hosts fit or not."""
    allowed = "a regular expression for whole host names; a bare * means all"

    def read(value: object) -> str:
        expression = ".*" if value == "*" else value
        if not isinstance(expression, str):
            raise BadValue(allowed)
        try:
            re.compile(expression)
        except re.error as error:
            raise BadValue(f"{allowed} ({error})") from None
        return expression

    return Kind(read, allowed)


def host_matches(expression: str | None, host: str) -> bool:
    """Return whether a host fits one of the site's host expressions (None: no host does), by either name.

    In any case, as names of hosts are compared (`batch.same_host`).
    """
    if expression is None:
        return False
    return any(re.fullmatch(expression, name, re.IGNORECASE) for name in (host, host.partition(".")[0]))
