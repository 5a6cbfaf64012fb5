# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the prose of the documentation: `make check` runs it.

Blocks of commands and text between the marks of `make generated` are not prose, and are not checked.
"""

from __future__ import annotations

import pathlib
import re
import sys
import typing as t

from markdown_it import MarkdownIt
from markdown_it.token import Token

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
SENTENCE_WORDS = 30
PARAGRAPH_WORDS = 120
CELL_CHARACTERS = 300
PAGE_BYTES = 15_000
GENERATED = re.compile(r"<!-- below: made by `make generated`.*?(?:<!-- above: made -->|\Z)", re.DOTALL)
"""A page with this mark may be of any size, and what is between the marks comes from the code."""

WORDS = {
    r"he|his|him|himself|she|her": "the user, they",
    r"told|tells?|telling": "report, notify, specify",
    r"said|saying": "report, specify, name",
    r"kept": "stored, saved, reserved",
    r"shown": "listed, printed, tested",
    r"mend(s|ed|ing)?": "fix, repair",
    r"of late|all the same|for ever|without a word|with a word|in nobody's way": "plain words",
    r"whoever|whomever|whosoever|somebody|nobody's": "the noun: a user, a process, no other user",
    r"ours|of ours": "of vTorque",
    r"(take|takes|taken|took|taking) away": "remove",
    r"hindrance|hinders?|heed|heeds|wherefore|thereof|whereof|herein": "plain words",
    r"simply|obviously|of course": "leave it out",
    r"rooms": "packages, for code",
    r"wings?|floors?|farewells?|bells?|own words?": "job and node, layers, exit, settings",
}
"""Words of a private dialect, and what to write."""

TO_DO: tuple[str, ...] = ()
"""Pages that do not pass yet. The list only shrinks: a page here that passes is an error."""


def list_pages() -> list[pathlib.Path]:
    """Return every page of prose of the checkout."""
    found = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("roles/*/README.md"), CHECKOUT / "lab/README.md"]
    return sorted([*found, *(CHECKOUT / "docs").rglob("*.md")])


def check_page(text: str) -> list[str]:
    """Return what is wrong with a page, one line for each fault.

    Args:
        text: the page, in Markdown.
    """
    faults = []
    if len(text.encode()) > PAGE_BYTES and not GENERATED.search(text):
        faults.append(f"page: {len(text.encode())} bytes, at most {PAGE_BYTES}: split it")
    tokens = MarkdownIt("commonmark").enable("table").parse(GENERATED.sub(_blank, text))
    line, opened = 0, ""
    for token in tokens:
        if token.map and token.nesting == 1:
            line = token.map[0] + 1
        if token.nesting == 1:
            opened = token.type
        if token.type == "inline":
            faults += [f"{line}: {fault}" for fault in _check_text(_plain(token), opened)]
    return faults


def _blank(found: re.Match[str]) -> str:
    """Return as many empty lines, so that numbers of lines stay right."""
    return "\n" * found[0].count("\n")


def _plain(token: Token) -> str:
    """Return the text that a reader sees; code is between backquotes."""
    parts = []
    for child in token.children or ():
        if child.type == "code_inline":
            parts.append(f"`{child.content}`")
        elif child.type in ("text", "softbreak", "hardbreak"):
            parts.append(child.content or " ")
    return "".join(parts)


def _check_text(text: str, opened: str) -> t.Iterator[str]:
    message = re.sub(r"`[^`]*`", "CODE", text)
    if opened in ("td_open", "th_open"):
        if len(text) > CELL_CHARACTERS:
            yield f"table cell: {len(text)} characters, at most {CELL_CHARACTERS}: {_begin(text)}"
    elif (size := len(message.split())) > PARAGRAPH_WORDS:
        yield f"paragraph: {size} words, at most {PARAGRAPH_WORDS}: {_begin(text)}"
    for sentence in re.split(r"(?<=[.!?])[\"')]*\s+", message):
        # a number alone, such as `(4711)`, is no word
        if (size := len(re.findall(r"\S*[^\W\d_]\S*", sentence))) > SENTENCE_WORDS:
            yield f"sentence: {size} words, at most {SENTENCE_WORDS}: {_begin(sentence)}"
    for pattern, better in WORDS.items():
        for found in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", message, re.IGNORECASE):
            yield f"word: {found[0]!r}; write: {better}"


def _begin(text: str) -> str:
    return text if len(text) < 60 else f"{text[:57]}..."


def main() -> int:
    """Print every fault, and every page of TO_DO that has none; return 1 where there is one."""
    status = 0
    for path in list_pages():
        name = str(path.relative_to(CHECKOUT))
        faults = check_page(path.read_text(encoding="utf-8"))
        if name in TO_DO:
            faults = [] if faults else ["it passes: take it out of TO_DO in tests/prose.py"]
        for fault in faults:
            status = 1
            print(f"{name}:{fault}" if fault[0].isdigit() else f"{name}: {fault}")
    return status


if __name__ == "__main__":
    sys.exit(main())
