# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's commands, as one types them."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from lab.system import places

LEFT = """
import sys
from lab import __main__ as lab
lab._left = lambda state, arguments: print("things of a job", end="\\n" * 100_000) or 0
sys.argv = ["lab", "left"]
sys.exit(lab.main())
"""


def test_command_whose_reader_has_gone_ends_without_a_traceback(tmp_path: pathlib.Path) -> None:
    """`lab left | head`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-c", LEFT], stdout=gone, stderr=subprocess.PIPE, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(places.CHECKOUT)},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
