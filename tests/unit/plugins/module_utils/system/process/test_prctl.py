# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process sets of itself, as the kernel tells it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import prctl


def test_death_signal_is_what_was_set() -> None:
    assert prctl.death_signal() == 0
    prctl.set_death_signal(signal.SIGUSR1)
    try:
        assert prctl.death_signal() == signal.SIGUSR1
    finally:
        prctl.set_death_signal(0)
    assert prctl.death_signal() == 0


def test_call_that_the_kernel_refuses_is_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        prctl.set_death_signal(1000)


def test_orphans_come_to_a_subreaper_as_long_as_it_is_one() -> None:
    assert not prctl.is_subreaper()
    prctl.set_subreaper(True)
    try:
        assert prctl.is_subreaper()
    finally:
        prctl.set_subreaper(False)
    assert not prctl.is_subreaper()


def test_prctl_loads_ctypes_at_the_first_call() -> None:
    code = f"import sys, {prctl.__name__}; print('ctypes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
