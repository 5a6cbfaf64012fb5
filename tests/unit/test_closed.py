# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make` runs the unit tests at a place that only root may enter, as root's home is where people clone to."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

CHECKOUT = templates.COLLECTION_DIR.parent
CLOSED = CHECKOUT / "tests/closed.sh"
LOOK = """
import os, pathlib, sys
here = pathlib.Path.cwd()
(here / "Makefile").read_text()
print(here)
os.setresuid(65534, 65534, 65534)
try:
    (here / "Makefile").read_text()
except PermissionError:
    sys.exit(7)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root needs no such place")
def test_closed_is_open_for_root_alone_and_leaves_no_mount() -> None:
    done = subprocess.run(
        [CLOSED, "/usr/bin/python3", "-I", "-c", LOOK], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (7, "")
    place = pathlib.Path(done.stdout.strip())
    assert place.parent == CHECKOUT / "build/closed"
    assert list(place.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root needs no such place")
def test_closed_is_at_the_same_place_for_commands_side_by_side() -> None:
    program = (
        "import pathlib, sys; print(pathlib.Path.cwd(), flush=True); input(); pathlib.Path('Makefile').read_text()"
    )
    command = [CLOSED, "/usr/bin/python3", "-I", "-c", program]
    with contextlib.ExitStack() as stack:
        runs = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _number in range(2)
        ]
        places = {run.stdout.readline() for run in runs if run.stdout}
        for run in runs:
            run.communicate("\n", timeout=60)
    assert len(places) == 1
    assert [run.returncode for run in runs] == [0, 0]


def test_make_runs_all_unit_tests_there() -> None:
    lines = (CHECKOUT / "Makefile").read_text().replace("\\\n", " ").splitlines()
    running = [line for line in lines if "tests/unit" in line and re.search(r"PYTEST|pytest", line)]
    assert len(running) >= 4
    call = r"\$\(CLOSED\) (env .*-m pytest|\$\(PYTEST\))[^;]* (tests/unit|\$\$\(named tests/unit)"
    assert [line for line in running if not re.search(call, line)] == []
