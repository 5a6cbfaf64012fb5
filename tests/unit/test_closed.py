# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make` runs the unit tests at a place that only root may enter, as root's home is where people clone to."""

from __future__ import annotations

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
def test_closed_is_open_for_root_alone_and_leaves_nothing() -> None:
    done = subprocess.run(
        [CLOSED, "/usr/bin/python3", "-I", "-c", LOOK], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert not pathlib.Path(done.stdout.strip()).parent.exists()


def test_make_runs_all_unit_tests_there() -> None:
    lines = (CHECKOUT / "Makefile").read_text().replace("\\\n", " ").splitlines()
    running = [line for line in lines if "tests/unit" in line and re.search(r"PYTEST|pytest", line)]
    assert len(running) >= 4
    call = r"\$\(CLOSED\) (env .*-m pytest|\$\(PYTEST\))[^;]* (tests/unit|\$\$\(named tests/unit)"
    assert [line for line in running if not re.search(call, line)] == []
