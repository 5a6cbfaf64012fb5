# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make fuzz` counts what it tried, fails where that is too little, and ends what hangs: on suites of a few lines."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

CONFTEST = pathlib.Path(__file__).parent / "fuzz/conftest.py"
HEAD = """
import time
from hypothesis import HealthCheck, assume, given, settings, strategies as st
settings.register_profile("few", max_examples=100, database=None, deadline=None, suppress_health_check=[*HealthCheck])
settings.load_profile("few")
"""
EVERY = "@given(st.integers())\ndef test_every(number): pass\n"
HALF = "@given(st.integers(0, 1000))\ndef test_half(number): assume(number % 2)\n"
NEVER = "@given(st.integers())\ndef test_never(number): assume(False)\n"
WRONG = "@given(st.integers())\ndef test_wrong(number): assert number < 1000\n"
HANGS = "@given(st.just(1))\ndef test_hangs(number): time.sleep(60)\n"
PLAIN = "def test_plain(): pass\n"
COUNTED = re.compile(r"^(\d+) random inputs tried, by (\d+) tests(, and \d+ were wanted)?$", re.MULTILINE)


def fuzz(
    place: pathlib.Path, suite: str, cases: int, *options: str, longest_s: float = 300
) -> tuple[int, tuple[int, int, str], str]:
    """The status, what the last lines count, and all of the words."""
    text = CONFTEST.read_text(encoding="utf-8")
    assert text.count("LONGEST_S = 300\n") == 1
    suite_at = place / "suite"
    suite_at.mkdir()
    text = text.replace("LONGEST_S = 300\n", f"LONGEST_S = {longest_s}\n")
    (suite_at / "conftest.py").write_text(text, encoding="utf-8")
    (suite_at / "inputs.py").write_text(f"CASES = {cases}\n", encoding="utf-8")
    (suite_at / "test_suite.py").write_text(HEAD + suite, encoding="utf-8")
    (place / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(suite_at)],
        capture_output=True, text=True, check=False, cwd=place, env={**os.environ, "CI": "true"},
    )  # fmt: skip
    found = COUNTED.search(done.stdout)
    assert found is not None, done.stdout + done.stderr
    return done.returncode, (int(found[1]), int(found[2]), found[3] or ""), done.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two"])
def test_each_test_has_its_share_and_only_what_came_to_its_end_counts(
    tmp_path: pathlib.Path, options: tuple[str, ...]
) -> None:
    status, (tried, tests, lack), arguments = fuzz(tmp_path, EVERY + HALF + PLAIN, 900, *options)
    assert (status, tests, lack) == (0, 2, "")
    by_test = {
        name: int(number) for number, name in re.findall(r"^ *(\d+)  test_suite\.py::(\w+)$", arguments, re.MULTILINE)
    }
    assert sum(by_test.values()) == tried
    # a round is a hundred inputs: a process that has done its share begins no other
    assert {name: 450 <= number < 550 for name, number in by_test.items()} == {"test_every": True, "test_half": True}


@pytest.mark.parametrize(
    ("suite", "word"), [(NEVER, "Unsatisfiable"), (WRONG, "assert number < 1000"), (HANGS, "hangs: more than 0.2 s")]
)
def test_too_little_is_a_failure_whatever_the_reason(tmp_path: pathlib.Path, suite: str, word: str) -> None:
    longest_s = 0.2 if suite == HANGS else 300
    status, (_tried, _tests, lack), arguments = fuzz(tmp_path, EVERY + suite, 400, longest_s=longest_s)
    assert (status, lack) == (1, ", and 400 were wanted")
    assert word in arguments


def test_suite_that_is_left_out_is_too_little(tmp_path: pathlib.Path) -> None:
    assert fuzz(tmp_path, EVERY + PLAIN, 100, "-k", "plain")[:2] == (1, (0, 0, ", and 100 were wanted"))
