# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contract of imports that is our own: what counts as joining two parts, and where it may be done."""

from __future__ import annotations

import pathlib
import tomllib

import grimp
import pytest
from ansible_collections.mikelangelo.vtorque.tests.import_contracts import MeetingPoint

CONTRACT = MeetingPoint(
    "job and node meet in bridge alone", {}, {"parts": ["v.job", "v.node"], "meeting_point": "v.bridge"}
)

ROOT = pathlib.Path(__file__).resolve().parents[2]


def graph_of(*imports: tuple[str, str]) -> grimp.ImportGraph:
    """Imports between modules of two parts, of the package where they meet, and of a program."""
    graph = grimp.ImportGraph()
    for name in ("v", "v.job", "v.job.plan", "v.node", "v.node.pool", "v.bridge", "v.bridge.planning", "v.cli"):
        graph.add_module(name)
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported, line_number=1, line_contents="")
    return graph


@pytest.mark.parametrize(
    "imports",
    [
        [("v.cli", "v.job.plan"), ("v.cli", "v.bridge.planning")],
        [("v.cli", "v.node"), ("v.bridge.planning", "v.job.plan"), ("v.bridge.planning", "v.node.pool")],
        [("v.bridge", "v.job"), ("v.bridge", "v.node")],
    ],
    ids=["a program of one part", "its meeting point", "the package itself"],
)
def test_meeting_point_one_part_or_the_package_itself_is_kept(imports: list[tuple[str, str]]) -> None:
    assert CONTRACT.check(graph_of(*imports), verbose=False).kept


@pytest.mark.parametrize("part", ["v.node", "v.node.pool"])
def test_meeting_point_program_that_imports_both_parts_is_broken_and_named(
    part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check = CONTRACT.check(graph_of(("v.cli", "v.job.plan"), ("v.cli", part)), verbose=False)
    assert not check.kept
    CONTRACT.render_broken_contract(check)
    out = capsys.readouterr().out
    for name in ("v.cli", "v.job.plan", part, "v.bridge"):
        assert name in out


def test_meeting_point_package_that_is_missing_is_an_error() -> None:
    """After a package was renamed the contract would else hold of nothing."""
    graph = graph_of()
    graph.remove_module("v.bridge")
    with pytest.raises(ValueError, match=r"there is no package v\.bridge"):
        CONTRACT.check(graph, verbose=False)


def modules_in(package: pathlib.Path, but: str) -> set[str]:
    """The names of what is directly inside of a package, but of one."""
    return {path.stem for path in package.iterdir() if path.name[0] != "_" and path.name != but}


def test_contract_on_libvirt_names_all_but_the_package_that_may_import_it() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    (contract,) = (one for one in settings["importlinter"]["contracts"] if "libvirt" in one["name"])
    prefix = "ansible_collections.mikelangelo.vtorque.plugins."
    named = {name.removeprefix(prefix) for name in contract["source_modules"]}
    module_utils = ROOT / "plugins/module_utils"
    wanted = {f"module_utils.{name}" for name in modules_in(module_utils, "node")}
    wanted |= {f"module_utils.node.{name}" for name in modules_in(module_utils / "node", "domain")}
    assert named == wanted | {"action", "inventory", "modules", "plugin_utils"}
