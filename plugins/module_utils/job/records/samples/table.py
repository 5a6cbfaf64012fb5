# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of a job as a table: a line for each guest and moment, with commas."""

from __future__ import annotations

import csv
import io

from ....wire.series import FIGURES, JobSeries, read_points

HEADINGS = ("time", "node", "guest", "rank", "tag", *FIGURES)
_FORMULA = ("=", "+", "-", "@")


def format_csv(series: JobSeries) -> str:
    """Return the samples of a job as a table.

    Args:
        series: what the nodes measured; `time` is in seconds since the epoch, a figure that is not known is empty.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEADINGS)
    for node in series.nodes:
        for guest in node.guests:
            # a spreadsheet would take such a tag for a formula
            tag = f"'{guest.tag}" if guest.tag.startswith(_FORMULA) else guest.tag
            for at_s, figures in read_points(guest.points):
                known = ["" if figure is None else f"{figure:.12g}" for figure in figures]
                writer.writerow([f"{node.began + at_s:.3f}", node.node, guest.name, guest.rank, tag, *known])
    return stream.getvalue()
