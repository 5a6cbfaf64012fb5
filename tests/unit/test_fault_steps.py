# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fault suite takes for a step of present and absent (tests/e2e/faults/strike.py): no new one is forgotten."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import (
    disk_server,
    guests,
    making,
    removing,
    slots,
    virtiofsd,
    worker,
)

from tests.e2e.faults import strike

MODULES = {
    "slots": slots, "removing": removing, "virtiofsd": virtiofsd, "disk_server": disk_server, "making": making,
    "guests": guests, "worker": worker,
}  # fmt: skip
EFFECTS = {"write_iso", "create", "symlink_to", "mkdir", "rmtree", "unlink", "copyfile", "touch", "write", "hold",
           "bind", "let_go", "destroy", "end_processes", "flush", "bury", "start", "make_overlay", "free"}  # fmt: skip
CALLER = """
def present(part):
    new_effect(part.settings.start_dir(1))
    return len(part.guests)
"""


def sources() -> dict[str, str]:
    """The modules that the suite looks at."""
    return {name: pathlib.Path(inspect.getfile(module)).read_text(encoding="utf-8") for name, module in MODULES.items()}


def test_modules_are_those_of_the_suite() -> None:
    """In its order."""
    assert tuple(MODULES) == strike.WALKED


def test_whatever_is_not_known_to_leave_nothing_is_a_step() -> None:
    """A call that somebody adds is tried without anybody's doing."""
    ((tree, places),) = strike.wrapped({"guests": CALLER}).values()
    assert places == ["guests.present: new_effect #1"]
    assert "strike_('guests.present: new_effect #1', lambda: new_effect(" in ast.unparse(tree)


def test_what_leaves_something_is_a_step() -> None:
    """Of the modules as they are; each place has a name of its own."""
    places = [place for tree, there in strike.wrapped(sources()).values() for place in there]
    assert len(places) == len(set(places))
    assert {re.split(r"[. ]", place.partition(" #")[0])[-1] for place in places} >= EFFECTS


@pytest.mark.parametrize("name", sorted(strike.LOOKS))
def test_no_call_is_taken_for_harmless_that_nobody_makes(name: str) -> None:
    """A name that comes back would not be tried."""
    calls = {
        ast.unparse(node.func)
        for text in sources().values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
    }  # fmt: skip
    assert name in calls
