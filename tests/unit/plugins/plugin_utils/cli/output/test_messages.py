# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors become `prog: message` and a status; a closed pipe becomes nothing."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import messages

ROOT = str(pathlib.Path(messages.__file__).parents[7])


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (UserFault("img=x", "no such image", "vmgr image list"), 2, "prog: img=x: no such image (vmgr image list)\n"),
        (SiteFault("qstat", "no answer"), 3, "prog: qstat: no answer\n"),
        (NodeFault("n1"), 3, "prog: n1\n"),
        (VTorqueError("odd"), 1, "prog: odd\n"),
        (FileNotFoundError(2, "No such file", "/x"), 1, "prog: [Errno 2] No such file: '/x'\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_error_and_status(error: BaseException, status: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise error

    assert messages.run("prog", fail) == status
    assert capsys.readouterr().err == text


def test_reader_that_goes_away_is_told_nothing() -> None:
    program = """
import sys
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import messages
def talk():
    for number in range(100000):
        print(number)
    return 0
sys.exit(messages.run("prog", talk))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PYTHONPATH": ROOT}
    ) as talker:
        assert talker.stdout is not None
        assert talker.stderr is not None
        talker.stdout.readline()
        talker.stdout.close()
        assert talker.stderr.read() == b""
        assert talker.wait() == messages.CLOSED_PIPE
