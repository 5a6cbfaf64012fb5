# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every module promises in its documentation, and that there is none that promises less."""

from __future__ import annotations

import importlib
import pathlib
import re
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.doc_fragments.attributes import ModuleDocFragment
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import errors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

ROOT = pathlib.Path(errors.__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
ACTIONS = sorted(path.stem for path in (ROOT / "plugins" / "action").glob("*.py"))


def documented(name: str) -> t.Any:
    return importlib.import_module(f"ansible_collections.mikelangelo.vtorque.plugins.modules.{name}")


def attributes_of(documentation: dict[str, t.Any]) -> dict[str, t.Any]:
    """What Ansible makes of a module's attributes: its own over those of the fragments that it names."""
    fragments = [name.rpartition(".attributes.")[2] for name in documentation["extends_documentation_fragment"]]
    texts = [getattr(ModuleDocFragment, name.upper(), ModuleDocFragment.DOCUMENTATION) for name in fragments]
    found: dict[str, t.Any] = {}
    for part in [*map(yaml.safe_load, texts), documentation]:
        for name, attribute in part.get("attributes", {}).items():
            found[name] = {**found.get(name, {}), **attribute}
    return found


def test_all_are_in_the_action_group() -> None:
    groups = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["action_groups"]
    assert sorted(groups["vtorque"]) == MODULES
    with_uri = [name for name in MODULES if "attributes.libvirt" in documented(name).DOCUMENTATION]
    assert sorted(groups["libvirt"]) == with_uri


def test_every_action_is_documented() -> None:
    assert set(ACTIONS) <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_documentation_promises_what_all_promise(name: str) -> None:
    documentation = yaml.safe_load(documented(name).DOCUMENTATION)
    assert documentation["module"] == name
    attributes = attributes_of(documentation)
    assert all(attributes[name]["support"] for name in ("check_mode", "diff_mode", "idempotent"))
    assert attributes["check_mode"]["support"] == "full"
    assert "mikelangelo.vtorque.attributes" in documentation["extends_documentation_fragment"]
    assert documented(name).EXAMPLES.lstrip().startswith("---")
    assert f"mikelangelo.vtorque.{name}:" in documented(name).EXAMPLES
    assert yaml.safe_load(documented(name).RETURN)


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_thin(name: str) -> None:
    code = (ROOT / "plugins" / "modules" / f"{name}.py").read_text().rpartition('"""\n\nimport ')[2]
    assert len(code.splitlines()) <= 120


def test_job_s_hooks_run_ansible_by_settings_of_their_own() -> None:
    text = templates.render("ansible.cfg.j2", site_dir=None, prefix="/opt/v", run_dir="/run/x", ssh_timeout=7)
    for line in (
        "interpreter_python = /opt/v/venv/bin/python",
        "local_tmp = /run/x/ansible",
        "home = /run/x/ansible",
        "enable_plugins = mikelangelo.vtorque.pbs_nodefile",
        "pipelining = True",
        "host_key_checking = True",
        "timeout = 7",
    ):
        assert line in text.splitlines()
    assert not re.search(r"StrictHostKeyChecking=(?!yes)|/home|~", text)
