# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which process the ready record is for."""

from __future__ import annotations

import os

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions.shell_access import SHELL, shell_of


def test_process_that_lives_is_the_jobs_shell() -> None:
    own = ProcessId.of(os.getpid())
    assert shell_of({SHELL: str(own)}) == own


def test_name_of_a_job_needs_no_process() -> None:
    of_job = shell_link.of_job("4711.lab")
    assert shell_of({SHELL: str(of_job)}) == of_job


@pytest.mark.parametrize("text", ["", "1", "x.1", "01.5", "00.5", "0.", "0.x", "-1.5"])
def test_text_of_another_form_is_no_process(text: str) -> None:
    with pytest.raises(VTorqueError, match="not <pid>"):
        shell_of({SHELL: text})


def test_process_that_is_gone_may_run_nothing() -> None:
    with pytest.raises(VTorqueError, match="is gone"):
        shell_of({SHELL: f"{os.getpid()}.1"})
