# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parameters of the log: what is refused, what the original's become, and what hosts make of them."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import consistency, policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.legacy import convert
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_file import PolicyErrors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.event_log import LogSettings


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("log_levels: [cache loud]\n", "log_levels", "trace, debug, info, warning, error"),
        ("log_levels: [readyness debug]\n", "log_levels", "readiness, placement"),
        ("log_levels: [cache debug, cache trace]\n", "log_levels", "cache has two levels"),
        ("log_format: json\n", "log_format", "needs log_file"),
        ("log_format: xml\nlog_file: /var/log/v.log\n", "log_format", "text or json"),
        ("log_program_level: fatal\n", "log_program_level", "error"),
        ("log_file: v.log\n", "log_file", "an absolute path"),
    ],
)
def test_wrong_parameter_of_the_log_is_refused_with_what_is_valid(text: str, name: str, message: str) -> None:
    with pytest.raises(PolicyErrors) as refused:
        policy_file.parse(text, "vtorque.yml")
    (fault,) = refused.value.faults
    assert fault.key == name
    assert message in fault.message


def test_parameters_of_the_log_reach_hosts_as_they_are_written() -> None:
    text = "log_levels: [cache  debug]\nlog_file: /var/log/v.log\nlog_format: json\nlog_program: /bin/p\n"
    policy = policy_file.parse(f"{text}log_program_level: warning\n", "vtorque.yml").policy
    file, program = pathlib.Path("/var/log/v.log"), pathlib.Path("/bin/p")
    assert consistency.log_settings_of(policy) == LogSettings(("cache debug",), file, "json", program, "warning")
    assert consistency.log_settings_of(Policy()) == LogSettings()


def test_parameters_of_the_originals_log_become_todays_or_are_dropped_with_a_reason() -> None:
    done = convert(
        "LOG_FILE=/var/log/vtorque.log\nLOG_ROTATE=false\nTRACE_DEFAULT=true\nPRINT_TO_STDOUT=true\nLOG_LEVEL=vsub:DEBUG\n",
        "config.sh",
    )
    policy = policy_file.parse(done.text, "vtorque.yml").policy
    assert (policy.log_file, policy.log_rotate, policy.trace_default) == ("/var/log/vtorque.log", False, True)
    dropped = {word.name: word.text for word in done.entries if word.fate == "dropped"}
    assert "SHOW_LOG=true" in dropped["PRINT_TO_STDOUT"]
    assert "log_levels" in dropped["LOG_LEVEL"]


def test_file_of_a_site_that_still_names_a_former_parameter_of_the_log_stays_good() -> None:
    assert policy_file.parse("print_to_stdout: false\n", "vtorque.yml").policy == Policy()
