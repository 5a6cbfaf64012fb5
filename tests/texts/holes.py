# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of known holes in docs/security, as Markdown: read from holes.yml."""

from __future__ import annotations

import functools
import pathlib
import typing as t

import yaml

SOURCE = pathlib.Path(__file__).with_name("holes.yml")
MARK = "<!-- made by `make generated` out of tests/texts/holes.yml -->\n\n"
NO_TEST = "**none yet**"
HEAD = "| no. | hole | vTorque | known from | tests |\n|---|---|---|---|---|\n"


class Hole(t.NamedTuple):
    """One known hole; `tests` are names as pytest takes them."""

    hole: str
    answer: str
    known: str
    tests: list[str]


class Area(t.NamedTuple):
    """The holes of one page."""

    title: str
    intro: str
    holes: list[Hole]


@functools.cache
def areas() -> dict[str, Area]:
    """Return the areas of holes.yml by the names of their pages."""
    data = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return {
        name: Area(one["title"], one["intro"], [Hole(**hole) for hole in one["holes"]]) for name, one in data.items()
    }


def index() -> str:
    """Return the generated part of docs/security/holes.md."""
    counts = {name: len({test for hole in area.holes for test in hole.tests}) for name, area in areas().items()}
    rows = "".join(
        f"| [{area.title}]({name}.md) | {len(area.holes)} | {counts[name]} |\n" for name, area in areas().items()
    )
    missing = "".join(
        f"* [{area.title}]({name}.md), number {number}: {hole.hole}.\n"
        for name, area in areas().items()
        for number, hole in enumerate(area.holes, 1)
        if not hole.tests
    )
    return f"| area | holes | tests |\n|---|---|---|\n{rows}\n## Not tested yet\n\n{missing}"


def page(name: str) -> str:
    """Return the page of one area.

    Args:
        name: of the area, as in holes.yml.
    """
    area = areas()[name]
    rows = "".join(
        f"| {number} | {hole.hole} | {hole.answer} | {hole.known} | {len(hole.tests) or NO_TEST} |\n"
        for number, hole in enumerate(area.holes, 1)
    )
    tests = "".join(
        f"{number}. {', '.join(f'`{test}`' for test in hole.tests) or NO_TEST}\n"
        for number, hole in enumerate(area.holes, 1)
    )
    back = "[Known holes](holes.md) explains the columns."
    return f"# {area.title}\n\n{MARK}{area.intro} {back}\n\n{HEAD}{rows}\n## Tests, by number\n\n{tests}"
