# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's record as a picture or a page that can be sent to somebody: it holds all it needs, and no script."""

from __future__ import annotations

import html
import typing as t

from . import timeline_svg
from .job_record import GUEST_HEADINGS, JobRecord

STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:2px 10px;text-align:left;border-bottom:1px solid #ddd}"
)


def picture(record: JobRecord, title: str) -> str:
    """The picture, as SVG.

    Args:
        record: of the start.
        title: above it.
    """
    return timeline_svg.draw_record(record.raw, title)


def page(
    record: JobRecord,
    title: str,
    guests: t.Sequence[t.Sequence[str]],
    phases: t.Sequence[tuple[str, float]],
) -> str:
    """The picture and its figures, as one HTML page.

    Args:
        record: of the start.
        title: above it.
        guests: a row of cells for each guest, as `GUEST_HEADINGS` names them.
        phases: names and seconds.
    """
    reasons = "".join(f"<p>{html.escape(line)}</p>\n" for line in (*record.reasons, record.wrong) if line)
    svg = picture(record, title).partition("?>\n")[2]
    seconds = [(name, f"{figure:.2f}") for name, figure in phases]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{html.escape(title)}</h1>\n{reasons}{svg}"
        f"{_table(GUEST_HEADINGS, guests)}{_table(('phase', 'seconds'), seconds)}</body></html>\n"
    )


def _table(headings: t.Sequence[str], rows: t.Sequence[t.Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(word)}</th>" for word in headings)
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f"<table><tr>{head}</tr>\n{body}</table>\n"
