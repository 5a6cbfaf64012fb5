# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that repeat the table of parameters are as the table is now."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import PARAMETERS, sections
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages, node_answers, update_result

from .loaded_program import load_program

ROOT = pathlib.Path(__file__).resolve().parents[2]


GENERATED = load_program(ROOT / "tests/generated.py")


@pytest.mark.parametrize("path", GENERATED.FILES)
def test_file_is_not_stale(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == GENERATED.wanted(path), "make generated"


def test_role_describes_every_parameter_and_its_default_passes() -> None:
    specs = yaml.safe_load((ROOT / "roles/common/meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = {
        name: spec for name, spec in specs["argument_specs"]["main"]["options"].items() if name[:8] == "vtorque_"
    }
    assert list(options) == [f"vtorque_{name}" for name in PARAMETERS]
    spec = {name: {key: option[key] for key in option if key != "description"} for name, option in options.items()}
    checked = ArgumentSpecValidator(spec).validate({})
    assert checked.error_messages == []
    for name, parameter in PARAMETERS.items():
        value = checked.validated_parameters[f"vtorque_{name}"]
        assert parameter.default == (None if value is None else parameter.kind.read(value)), name


def test_every_parameter_is_in_one_group() -> None:
    grouped = [parameter.name for _title, parameters in sections() for parameter in parameters]
    assert grouped == list(PARAMETERS)
    assert len({title for title, _parameters in sections()}) == len(sections())


def test_page_has_one_line_for_each_parameter_and_no_promise() -> None:
    page = (ROOT / "docs/admin/parameters.md").read_text(encoding="utf-8")
    for name in PARAMETERS:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert "not available" not in line.lower()


def test_page_of_wire_formats_has_a_row_for_every_field() -> None:
    page = (ROOT / "docs/developer/wire-formats.md").read_text(encoding="utf-8")
    for message in (messages.NodePart, messages.JobMap, node_answers.GuestUse, update_result.GuestUpdates):
        section = page.partition(f"\n### {message.__name__}\n")[2].partition("\n#")[0]
        assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == [
            field.name for field in dataclasses.fields(message)
        ]


MANUALS = sorted(path.name for path in (ROOT / "docs/man").glob("*.[1-8]"))


@pytest.mark.parametrize("name", MANUALS)
def test_manual_page_is_installed_and_troff_has_no_word_against_it(name: str) -> None:
    installed = yaml.safe_load((ROOT / "roles/common/vars/main.yml").read_text(encoding="utf-8"))["__common_manuals"]
    assert sorted(installed) == MANUALS
    command = ["groff", "-man", "-t", "-ww", "-z", "-K", "utf8", str(ROOT / "docs/man" / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
