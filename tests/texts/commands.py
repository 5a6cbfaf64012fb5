# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What repeats the commands themselves, as Markdown: vsub's keys from their table, vmgr's verbs from its parser."""

from __future__ import annotations

import argparse
import re
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.keys import KEYS
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main

USAGE_COLUMNS = 10_000
"""A usage is one line: who prints it folds it."""


def keys() -> str:
    """The keys of `-vm` in vsub(1)."""
    return "".join(f"`{name}`\n: {key_words(name)}\n\n" for name in KEYS)


def key_words(name: str) -> str:
    """What a key means and takes.

    Args:
        name: of the key.
    """
    key = KEYS[name]
    first = key.meaning.partition(" ")[0]
    # vCPUs, and a list of words that are written small
    begin = key.meaning[0].upper() if first.isalpha() and first.islower() else key.meaning[0]
    return f"{begin}{key.meaning[1:]}. Allowed: {key.kind.allowed}."


ESSENTIAL = ("img", "vcpus", "ram", "vms_per_node")
"""Keys that most jobs need; the page for users lists them first."""


def keys_table() -> str:
    """Return the keys of `-vm` as tables of the user's manual, the essential ones first."""
    more = [name for name in KEYS if name not in ESSENTIAL]
    parts = (("Essential keys", ESSENTIAL), ("More keys", more))
    return "".join(f"## {title}\n\n{_keys_rows(names)}\n" for title, names in parts)


def _keys_rows(names: t.Iterable[str]) -> str:
    cells = ((f"`{name}`", key_words(name).replace("|", "\\|")) for name in names)
    return "| key | what it means and takes |\n|---|---|\n" + "".join(f"| {a} | {b} |\n" for a, b in cells)


def verbs() -> str:
    """Every verb of vmgr with its options, its words and its examples, in vmgr(1)."""
    parser = main._parser({name: main._module(name) for name in main.SUBJECTS})
    return "\n".join(_parsers(parser))


def _parsers(parser: argparse.ArgumentParser) -> t.Iterator[str]:
    """What is below a parser: its verbs, and those of its subjects."""
    (choices,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in choices._choices_actions}
    for name, own in main._below(parser).items():
        yield from _parsers(own) if main._below(own) else [_verb(own, helps[name])]


def _verb(parser: argparse.ArgumentParser, message: str) -> str:
    lines = [*_usage(parser), "", parser.description or f"{message[0].upper()}{message[1:].rstrip('.')}.", ""]
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            lines += [", ".join(f"`{word}`" for word in _names(action)), f": {_help(parser, action)}", ""]
    for paragraph in parser.epilog.strip().split("\n\n") if parser.epilog else ():
        # a list, whose lines stand as they are
        lines += ["```text", paragraph, "```", ""] if "\n  " in paragraph else [_plain(paragraph), ""]
    return "\n".join(lines)


def _usage(parser: argparse.ArgumentParser) -> t.Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog, width=USAGE_COLUMNS)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    arguments = formatter.format_help().strip().removeprefix(parser.prog).replace("[-h]", "").split()
    yield f"### {parser.prog}"
    yield ""
    yield f"`{' '.join([parser.prog, *arguments])}`"


def _names(action: argparse.Action) -> t.Iterator[str]:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        yield value
    for option in action.option_strings:
        yield option if action.nargs == 0 else f"{option} {value}"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    printed = (action.help or "") % {**vars(action), "prog": parser.prog}
    return _plain(f"{printed[:1].upper()}{printed[1:]}.")


def _plain(text: str) -> str:
    """A star or an angle of a sentence is no mark of Markdown's."""
    return re.sub(r"([*_<\[])", r"\\\1", text)
