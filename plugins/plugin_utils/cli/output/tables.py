# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listings: tables for people; json_output.py shows the same rows to programs."""

from __future__ import annotations

import typing as t

from ....module_utils.job.request.value_types import encode_value

Row = dict[str, t.Any]


def cell_text(value: object) -> str:
    """A value as a cell shows it; `-` for none.

    Args:
        value: of any kind that `value_types.encode_value` knows.

    Returns:
        The text.
    """
    if value is None or value in ("", ()):
        return "-"
    return encode_value(t.cast("str", value))


def table(rows: t.Sequence[Row]) -> None:
    """Print rows: columns are there only where some row fills them.

    Args:
        rows: all with the same keys.
    """
    if not rows:
        print("none")
        return
    columns = [column for column in rows[0] if any(row[column] not in ("", None) for row in rows)]
    lines = [columns, *([cell_text(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in lines) + 2 for i in range(len(columns))]
    for line in lines:
        print("".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
