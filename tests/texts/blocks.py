# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Blocks of commands in the documentation: where they stand, where they run, and what they show."""

from __future__ import annotations

import dataclasses
import pathlib
import re

from markdown_it import MarkdownIt

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PAGES = (
    "README.md", "CONTRIBUTING.md",
    *sorted(str(page.relative_to(CHECKOUT)) for page in (CHECKOUT / "docs").rglob("*.md")),
)  # fmt: skip
PROMPTS = ("$ ", "# ")
INDENTED = ""
"""The language of a block that has no fence."""
ANYTHING = "..."


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of a block, and the lines that are shown below it."""

    text: str
    printed: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        page: its path in the checkout.
        line: where it begins, from 1.
        language: the first word behind the fence; `INDENTED` where there is none.
        mark: the rest of that line.
        text: what it holds.
    """

    page: str
    line: int
    language: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def place(self) -> str:
        """User and host where its commands run, "" where nobody runs them here."""
        word = self.mark.partition(" ")[0]
        return word if "@" in word else ""

    @property
    def status(self) -> int:
        """How each of its commands ends."""
        found = re.search(r" status=(\d+)$", self.mark)
        return int(found[1]) if found else 0

    @property
    def file(self) -> str:
        """The test that runs it elsewhere, or ""."""
        return self.mark.removeprefix("in=") if self.mark.startswith("in=") else ""

    @property
    def commands(self) -> tuple[Command, ...]:
        """Its commands in order; what stands before the first prompt belongs to none."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith(PROMPTS):
                found.append((line[2:], []))
            elif found:
                found[-1][1].append(line)
        return tuple(Command(text, tuple(printed)) for text, printed in found)


def blocks(page: str) -> tuple[Block, ...]:
    """All blocks of a page.

    Args:
        page: its path in the checkout.
    """
    tokens = MarkdownIt().parse((CHECKOUT / page).read_text(encoding="utf-8"))
    found = [token for token in tokens if token.type in ("fence", "code_block")]
    return tuple(
        Block(page, (token.map or [0])[0] + 1, *_info(token.info), token.content)
        for token in found
    )  # fmt: skip


def _info(info: str) -> tuple[str, str]:
    language, _blank, mark = info.strip().partition(" ")
    return language or INDENTED, mark.strip()


def pattern(printed: str) -> re.Pattern[str]:
    """What a line of output must be to be the one that is shown.

    Args:
        printed: `...` stands for anything, blanks for blanks, 4711 for a job and `head` for its server.
    """
    parts = [re.escape(" ".join(part.split())) for part in printed.split(ANYTHING)]
    text = ".*".join(parts).replace(r"\ ", r"\s+")
    # blanks beside what stands for anything may be that
    text = re.sub(r"\.\*(\\s\+)?", ".*", re.sub(r"(\\s\+)?\.\*", ".*", text))
    return re.compile(r"\s*" + text.replace(r"4711\.head", r"\d+\.fe").replace("4711", r"\d+") + r"\s*")


def missing(printed: tuple[str, ...], output: str) -> str:
    """The first line that is shown and did not come, where it should; "" when all did.

    Args:
        printed: in the documentation.
        output: what the command wrote.
    """
    lines = iter(output.splitlines())
    for line in printed:
        if line.strip() in ("", ANYTHING):
            continue
        wanted = pattern(line)
        if not any(wanted.fullmatch(came) for came in lines):
            return line
    return ""
