# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verbs of a command, alike in their help."""

from __future__ import annotations

import argparse
import typing as t

if t.TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]
    """What `add_subparsers` returns."""


def add_verb(verbs: Verbs, name: str, summary: str, epilog: str = "") -> argparse.ArgumentParser:
    """Add a verb, and return its parser.

    Args:
        verbs: of the command.
        name: of the verb.
        summary: what it does, in the list of verbs and at the top of its own help.
        epilog: what stands below its options, line by line.
    """
    return verbs.add_parser(
        name,
        help=summary,
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
