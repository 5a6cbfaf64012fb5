# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque.yml.j2`: what the install role writes is what the product reads."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import re

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import PARAMETERS, Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_file import PolicyErrors, load
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_writer import policy_text


def loaded(directory: pathlib.Path, text: str) -> Policy:
    directory.chmod(0o755)
    path = directory / "vtorque.yml"
    path.write_text(text, encoding="utf-8")
    return load(path, owner_uid=os.getuid())


def test_file_shows_every_parameter_with_its_default_and_meaning() -> None:
    text = policy_text({})
    printed = re.findall(r"^# (.+)\n#([a-z0-9_]+):(.*)$", text, re.MULTILINE)
    assert [name for _meaning, name, _default in printed] == list(PARAMETERS)
    for meaning, name, default in printed:
        parameter = PARAMETERS[name]
        assert (name, meaning) == (name, parameter.meaning)
        wanted = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
        assert (name, yaml.safe_load(default)) == (name, wanted)


def test_silent_site_gets_the_defaults(tmp_path: pathlib.Path) -> None:
    defaults = {name: parameter.default for name, parameter in PARAMETERS.items()}
    text = policy_text({name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()})
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == []
    assert loaded(tmp_path, text) == Policy()


def test_role_variables_are_read_back_from_the_file(tmp_path: pathlib.Path) -> None:
    settings = {
        "vcpus_default": 2,
        "mac_prefix": "52:54:01",
        "domain": "a.b",
        "allow_emulation": True,
        "ram_max": "64G",
    }
    policy = loaded(tmp_path, policy_text(settings))
    assert (policy.vcpus_default, policy.mac_prefix, policy.domain) == (2, "52:54:01", "a.b")
    assert (policy.allow_emulation, policy.ram_max) == (True, 65536)


def test_name_that_no_parameter_has_is_not_dropped(tmp_path: pathlib.Path) -> None:
    text = policy_text({"vcpu_default": 2})
    try:
        loaded(tmp_path, text)
        report = []
    except PolicyErrors as error:
        report = [fault.key for fault in error.faults]
    assert report == ["vcpu_default"]


def test_groups_and_remarks_are_shown() -> None:
    text = policy_text({"bridge": "br1"}, {"bridge": ["one", "two"], "timeout": ["kept"]})
    assert '\n## the guests\' network\n\n# bridge of the guests\n# (one)\n# (two)\nbridge: "br1"\n# first half' in text
    assert "\n# (kept)\n#timeout: 120\n" in text


@pytest.mark.parametrize("value", [0, "", "0", 1, "false"])
def test_value_of_another_type_than_the_default_is_not_taken_for_it(value: object) -> None:
    assert f"\nallow_emulation: {json.dumps(value)}\n" in policy_text({"allow_emulation": value})


def test_value_that_yaml_has_no_word_for_is_shown_as_a_word() -> None:
    assert '\ndomain: "2026-11-22"\n' in policy_text({"domain": datetime.date(2026, 11, 22)})
