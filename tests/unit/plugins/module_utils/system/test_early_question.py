# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A question that is asked before its answer is needed."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.early_question import EarlyQuestion


def test_the_caller_goes_on_while_it_is_answered() -> None:
    asked, went_on = threading.Event(), threading.Event()

    def ask() -> str:
        asked.set()
        assert went_on.wait(60)
        return "two nodes"

    answer = EarlyQuestion(ask)
    assert asked.wait(60)
    went_on.set()
    assert answer() == "two nodes"
    assert answer() == "two nodes"


def test_what_it_raises_is_raised_where_the_answer_is_needed() -> None:
    def ask() -> str:
        raise SiteFault("sinfo", "cannot be run")

    answer = EarlyQuestion(ask)
    with pytest.raises(SiteFault, match="cannot be run"):
        answer()


def test_a_program_that_ends_meanwhile_leaves_nothing_behind() -> None:
    """The child has its standard error, whose end is heard here."""
    ask = "lambda: subprocess.run(['sleep', '600'], timeout=1)"
    text = f"import subprocess\nfrom {EarlyQuestion.__module__} import EarlyQuestion\nEarlyQuestion({ask})\nprint('on')"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("on\n", "")
