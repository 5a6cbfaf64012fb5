# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr config`: the site's configuration."""

from __future__ import annotations

import argparse
import typing as t

from ...module_utils.job.parameters import PARAMETERS, Policy
from .tables import table

HELP = "the site's configuration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `vmgr config`."""
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("show", help="every parameter, its value, and whether the site has set it")
    verb.add_argument("--json", action="store_true", help="for programs")


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Show every parameter.

    Args:
        call: the arguments.
        load: gives the site's policy.

    Returns:
        The exit status.
    """
    policy = load()
    values = {name: getattr(policy, name) for name in PARAMETERS}
    table([
        {"name": name, "value": value, "from": "default" if value == PARAMETERS[name].default else "site"}
        for name, value in values.items()
    ], as_json=call.json)  # fmt: skip
    return 0
