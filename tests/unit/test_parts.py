# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs the parts of `make test` tells of every part, and fails when one did."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest

PARTS = pathlib.Path(__file__).parents[1] / "parts.sh"
MAKEFILE = """
good: ; @echo "good has $(shell cat seen)"
bad: ; @echo "bad said this"; false
waits: ; @mkfifo bell 2>/dev/null; cat bell
wakes: ; @mkfifo bell 2>/dev/null; echo woken >bell
busy: ; @python3 -I -c 'import time; all(iter(lambda: time.process_time() < 0.6, False))'
slow: ; @sleep 0.3; echo yes >seen
also: ; @nice >>niceness
again: ; @nice >>niceness
gone: ; @kill -9 $$(ps -o ppid= $$PPID)
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "tests").mkdir()
    shutil.copy(PARTS, tmp_path / "tests")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "seen").write_text("no")
    return lambda *chains: subprocess.run(
        [str(tmp_path / "tests/parts.sh"), *chains], capture_output=True, text=True, check=False, timeout=60
    )


def test_all_that_pass(run):
    done = run("slow good")
    assert done.returncode == 0, done
    assert "good has yes" in done.stdout
    assert [line.split()[:2] for line in done.stdout.split("== parts\n")[1].splitlines()] == [
        ["slow", "passed"],
        ["good", "passed"],
    ]


def test_table_has_the_processor_time_of_each_part(run):
    idle, busy = run("good busy").stdout.split("== parts\n")[1].splitlines()
    assert re.fullmatch(r"good +passed +\d+ s +\d+ s of a processor", idle)
    match = re.fullmatch(r"busy +passed +\d+ s +(\d+) s of a processor", busy)
    assert match
    assert int(match[1]) >= 1


def test_chains_run_side_by_side(run):
    done = run("waits", "wakes")
    assert done.returncode == 0, done
    assert "woken" in done.stdout


def test_chains_behind_the_dashes_give_way(run, tmp_path):
    assert run("also", "also", "--", "also", "again").returncode == 0
    own, behind = os.nice(0), min(19, os.nice(0) + 10)
    assert sorted(map(int, (tmp_path / "niceness").read_text().split())) == [own, own, behind, behind]


def test_chain_that_has_ended_takes_part_in_those_behind_the_dashes_from_the_last_on(run):
    done = run("good", "--", "waits", "also", "wakes")
    assert done.returncode == 0, done
    assert [line.split()[0] for line in done.stdout.split("== parts\n")[1].splitlines()].index("also") > 1


def test_failed_part_ends_nothing_and_is_told_last(run):
    done = run("bad good")
    assert done.returncode == 1
    end = done.stdout.split("== bad failed")[1]
    assert "bad said this" in end
    assert "good has no" in done.stdout
    assert "good           passed" in end


def test_part_that_was_never_counted_is_a_failure(run):
    assert run("gone", "good").returncode == 1


def test_without_parts_it_says_how(run):
    done = run()
    assert done.returncode == 2
    assert "CHAIN" in done.stdout


def test_programs_of_make_store_what_they_have_compiled():
    line = 'probe: ; @echo "<$$PYTHONDONTWRITEBYTECODE>"'
    done = subprocess.run(
        ["make", "-s", "-C", str(PARTS.parents[1]), "--eval", line, "probe"], capture_output=True, text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "<>\n"
