# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs read: `--json`, and `--query` for a part of it."""

from __future__ import annotations

import argparse
import json
import typing as t

from ....module_utils.errors import UserFault
from ....module_utils.slow_libraries import load_library

FLAG = "--query"
SHOWN = 120


class Query:
    """A JMESPath expression (https://jmespath.org).

    Args:
        text: the expression.

    Raises:
        UserFault: it is none.
    """

    def __init__(self, text: str) -> None:
        jmespath = load_library("jmespath")
        self.text = text
        self._wrong: type[Exception] = jmespath.exceptions.JMESPathError
        try:
            self._expression = jmespath.compile(text)
        except self._wrong as error:
            raise _fault(text, error) from None

    def of(self, data: t.Any) -> t.Any:
        """What the expression finds.

        Args:
            data: as JSON has it.

        Raises:
            UserFault: it cannot be applied to this.
        """
        try:
            return self._expression.search(data)
        except self._wrong as error:
            raise _fault(self.text, error) from None


def _fault(text: str, error: Exception) -> UserFault:
    # of several lines, the later ones point at a column
    message = str(error).partition("\n")[0].strip().rstrip(":.")
    where = getattr(error, "lex_position", None)
    place = f" (at character {where + 1})" if isinstance(where, int) and where >= 0 else ""
    return UserFault(
        f"{FLAG} {text[:SHOWN]!r}",
        f"{message[:300]}{place}",
        "it is a JMESPath expression, as [].state or [?state=='ok']",
    )


class _QueryAction(argparse.Action):
    """Compile at once, so that a wrong expression is told before any work; and show JSON."""

    def __call__(self, parser: t.Any, namespace: argparse.Namespace, values: t.Any, option: t.Any = None) -> None:
        namespace.query = Query(values)
        namespace.json = True


def add_json(parser: argparse.ArgumentParser, purpose: str = "for programs", group: t.Any = None) -> None:
    """The options `--json` and `--query`; the latter implies the former.

    Args:
        parser: of the command.
        purpose: what `--json` is.
        group: where `--json` excludes others.
    """
    (group or parser).add_argument("--json", action="store_true", help=purpose)
    parser.add_argument(
        FLAG, action=_QueryAction, metavar="EXPRESSION", help="what this JMESPath expression finds in the JSON"
    )


class JsonOptions(t.Protocol):
    """What was asked, as far as it matters here."""

    @property
    def query(self) -> Query | None:
        """Which part is wanted; None: all of it."""


def print_json(call: JsonOptions | argparse.Namespace, data: t.Any) -> None:
    """Print what there is as JSON, or what the caller asked of it.

    Args:
        call: the arguments.
        data: of dicts, lists and tuples, texts and figures.

    Raises:
        UserFault: the expression cannot be applied to it.
    """
    if call.query is not None:
        data = call.query.of(json.loads(json.dumps(data)))
    print(json.dumps(data, indent=2))
