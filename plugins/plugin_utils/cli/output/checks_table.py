# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was found on many hosts as one table: a row a check, hosts that agree folded into one name."""

from __future__ import annotations

import contextlib
import sys
import typing as t

from ....module_utils.wire.health_report import BAD, NONE, OK, STATES, WARN, Report
from .node_names import fold_names

with contextlib.suppress(ImportError):  # the roles install it; ansible-test imports this file without it
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

COLOURS = {OK: "green", WARN: "yellow", BAD: "bold red", NONE: "dim"}
WIDE = 1000
"""Columns where nobody looks: a line of a file is not folded."""
FEW = 3
REMEDY = "-> "


class Row(t.NamedTuple):
    """Hosts on which a check found the same.

    Attributes:
        check: its name.
        state: one of `findings.STATES`.
        value: in a word or two.
        nodes: their names.
        problem: what is wrong.
        remedy: what to do about it.
    """

    check: str
    state: str
    value: str
    nodes: tuple[str, ...]
    problem: str
    remedy: str


def rows(reports: t.Sequence[Report], checks: t.Sequence[str]) -> tuple[Row, ...]:
    """What was found, hosts that agree together; of a check what is bad first.

    Args:
        reports: of the hosts.
        checks: names of checks, in their order.
    """
    groups: dict[tuple[str, str, str, str], list[tuple[str, str]]] = {}
    for report in reports:
        for one in report.findings:
            # figures of hosts that are well may differ, and make no difference
            groups.setdefault((one.check, one.state, one.problem, one.remedy), []).append((report.node, one.cell))
    found = [
        Row(
            check,
            state,
            _common_value([cell for _node, cell in hosts]),
            tuple(node for node, _value in hosts),
            problem,
            remedy,
        )
        for (check, state, problem, remedy), hosts in groups.items()
    ]
    return tuple(sorted(found, key=lambda row: (checks.index(row.check), -STATES.index(row.state))))


def _common_value(cells: t.Sequence[str]) -> str:
    different = sorted(set(cells), key=lambda word: (len(word), word))
    return ", ".join(different) if len(different) <= FEW else f"{different[0]} .. {different[-1]}"


def print_table(reports: t.Sequence[Report], checks: t.Sequence[str], title: str = "check") -> None:
    """Print the table; with one host its name is left out.

    Args:
        reports: of the hosts.
        checks: names of checks, in their order.
        title: of the first column.
    """
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else WIDE, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold" if terminal else "")
    several = len(reports) > 1
    table.add_column(title, no_wrap=True)
    if several:
        table.add_column("nodes", overflow="fold", max_width=32 if terminal else None)
    table.add_column("found", no_wrap=True)
    table.add_column("", overflow="fold")
    before = ""
    for row in rows(reports, checks):
        problem = row.problem + (f"\n{REMEDY}{row.remedy}" if row.remedy else "")
        # as text: what a host says is never markup
        cells = [Text(row.check if row.check != before else ""), Text(row.value, COLOURS[row.state]), Text(problem)]
        if several:
            cells.insert(1, Text(fold_names(row.nodes)))
        table.add_row(*cells)
        before = row.check
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
