# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""--json, and the part of it that --query asks for."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import json_output
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main

ROWS = [{"node": "cn1", "state": "ok", "free": (1, 2)}, {"node": "cn2", "state": "bad", "free": ()}]


def call(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    json_output.add_json(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "report"),
    [
        (("--json",), [{"node": "cn1", "state": "ok", "free": [1, 2]}, {"node": "cn2", "state": "bad", "free": []}]),
        (("--query", "[?state=='bad'].node"), ["cn2"]),
        (("--json", "--query", "[0].free[1]"), 2),
        (("--query", "length(@)", "--json"), 2),
        (("--query", "[].nothing | [0]"), None),
    ],
)
def test_json_or_its_queried_part_is_printed(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], report: t.Any
) -> None:
    asked = call(*arguments)
    assert asked.json
    json_output.print_json(asked, ROWS)
    assert json.loads(capsys.readouterr().out) == report


def test_command_without_options_prints_no_json() -> None:
    assert not call().json


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("[?state==ok", "at character 1[0-9]"),
        ("", "empty|Expecting"),
        ("[].", "'\\[\\].'"),
        ("a b", "at character 3"),
    ],
)
def test_no_expression_is_told_before_anything_is_done(expression: str, message: str) -> None:
    with pytest.raises(UserFault, match=message) as caught:
        call("--query", expression)
    assert "JMESPath" in caught.value.hint


@pytest.mark.parametrize(("expression", "message"), [("nosuch(@)", "nosuch"), ("sum([].node)", "sum")])
def test_expression_that_does_not_fit(capsys: pytest.CaptureFixture[str], expression: str, message: str) -> None:
    with pytest.raises(UserFault, match=message):
        json_output.print_json(call("--query", expression), ROWS)
    assert capsys.readouterr().out == ""


def test_every_command_with_json_has_it() -> None:
    report = main.completion_values("/pool", "/records")
    options = {
        **report["options"],
        **{name: arguments for name, arguments in report["verbs"].items() if "--json" in arguments},
    }
    with_json = {command for command, arguments in options.items() if "--json" in arguments}
    assert {"image list", "job show", "config show", "doctor"} <= with_json
    assert {command for command, arguments in options.items() if "--query" in arguments} == with_json


def test_json_output_loads_jmespath_only_for_a_query() -> None:
    program = f"import sys, {json_output.__name__} as j; j.add_json; print('jmespath' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
