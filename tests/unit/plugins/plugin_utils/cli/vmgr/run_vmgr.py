# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr, run in this process."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main


def run_vmgr(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Its exit status, and what it printed on standard output."""
    status = main.run_subject(list(arguments))
    return status, capsys.readouterr().out
