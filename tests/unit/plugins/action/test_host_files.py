# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action gives to the module: texts of templates and of files of the controller, once for each word."""

from __future__ import annotations

import pathlib
import typing as t
from unittest import mock

import pytest
from ansible.errors import AnsibleError
from ansible_collections.mikelangelo.vtorque.plugins.action import host_files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import render


def play(entries: list[dict[str, t.Any]]) -> tuple[dict[str, t.Any], list[dict[str, t.Any]]]:
    """The result, and the entries that the module was given."""
    action = host_files.ActionModule(
        task=mock.MagicMock(args={"entries": entries, "gone": ["/x"]}, async_val=0), connection=mock.MagicMock(),
        play_context=mock.MagicMock(), loader=mock.MagicMock(), templar=mock.MagicMock(), shared_loader_obj=None,
    )  # fmt: skip
    # the loader's own mark: ansible-core 2.18 gives it no default
    action._load_name = "host_files"
    action._early_needs_tmp_path = lambda: False
    given: list[dict[str, t.Any]] = []

    def execute(name: str, arguments: dict[str, t.Any], *, task_vars: object) -> dict[str, t.Any]:
        assert (name, arguments["gone"], task_vars) == ("mikelangelo.vtorque.host_files", ["/x"], {})
        given.extend(arguments["entries"])
        return {"changed": True, "paths": ["/one"]}

    action._execute_module = execute
    return action.run(task_vars={}), given


def test_action_renders_a_template_for_each_word() -> None:
    result, given = play([
        {"path": "/opt/bin/{each}", "template": "launchers/{each}.sh.j2", "values": {"prefix": "/opt"},
         "each": ["vmgr", "vsub"], "mode": "0755"},
        {"path": "/etc/plain", "content": "{each} stays"},
        {"path": "{each}", "state": "absent", "each": []},
    ])  # fmt: skip
    assert result["paths"] == ["/one"]
    assert given == [
        {"path": f"/opt/bin/{name}", "mode": "0755", "content": render(f"launchers/{name}.sh.j2", prefix="/opt")}
        for name in ("vmgr", "vsub")
    ] + [{"path": "/etc/plain", "content": "{each} stays"}]


def test_action_reads_files_of_the_controller(tmp_path: pathlib.Path) -> None:
    (tmp_path / "vsub.1").write_text("a manual\n")
    _result, given = play([{"path": "/man/{each}", "source": f"{tmp_path}/{{each}}", "each": ["vsub.1"]}])
    assert given == [{"path": "/man/vsub.1", "content": "a manual\n"}]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"source": "/nowhere/file"}, "the file /nowhere/file"),
        ({"template": "nowhere.j2"}, "template nowhere.j2"),
        ({"template": "launchers/vsub.sh.j2"}, "prefix"),
    ],
)
def test_action_fails_before_anything_is_placed(entry: dict[str, t.Any], message: str) -> None:
    result, given = play([{"path": "/first", "state": "directory"}, {"path": "/second", **entry}])
    assert (result["failed"], given) == (True, [])
    assert message in result["msg"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"content": "x"}, "path"),
        ({"path": "/x", "content": "x", "source": "/y"}, "mutually exclusive"),
        ({"path": "/x", "colour": "red"}, "colour"),
        ({"path": "/x", "state": "there"}, "state"),
        ("/x", "dict"),
    ],
)
def test_action_refuses_arguments_before_it_reads_any_file(entry: object, message: str) -> None:
    with pytest.raises(AnsibleError, match=message):
        play(t.cast("list[dict[str, t.Any]]", [entry]))
