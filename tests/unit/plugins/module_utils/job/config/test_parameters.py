# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of parameters: nothing is accepted and then ignored."""

from __future__ import annotations

import ast
import pathlib
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import parameters
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.batch_systems import BATCH_SYSTEMS
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import (
    BOUNDS_OF,
    DEFAULT_OF,
    PARAMETERS,
)

PLUGINS = pathlib.Path(parameters.__file__).parents[3]


def read_of_a_policy(source: str) -> t.Iterator[str]:
    """Attributes that a source reads of something called `policy`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] == "policy":
            yield node.attr


def test_parameter_that_nothing_reads_cannot_be_set() -> None:
    read = {name for path in PLUGINS.rglob("*.py") for name in read_of_a_policy(path.read_text(encoding="utf-8"))}
    # these are read by way of the tables, for each key of a request and for the site's batch system
    read |= set(DEFAULT_OF.values()) | {name for bounds in BOUNDS_OF.values() for name in bounds}
    read |= {facts.commands_parameter for facts in BATCH_SYSTEMS.values()}
    assert [name for name in PARAMETERS if name not in read] == []
