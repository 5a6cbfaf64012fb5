# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each reach into Ansible's private parts, against the ansible-core that is installed.

A test that fails here on a new ansible-core names what it has changed.  Jobs go on meanwhile: they are played by plain
ansible-playbook (test_run_playbook.py).
"""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
import subprocess
import sys
import tempfile
import typing as t

import pytest
from ansible import constants
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import ansible_internals

PLUGINS = pathlib.Path(ansible_internals.__file__).parents[2]
PUBLIC = frozenset({
    "ansible.errors", "ansible.module_utils.basic", "ansible.plugins.action", "ansible.plugins.inventory",
})  # fmt: skip
"""What Ansible documents for who writes plugins and modules."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a Python of their own, in which `reach` is the module: what a reach loads or changes stays there."""
    begin = f"import sys\nfrom {ansible_internals.__name__} import AnsibleChanged\n"
    begin += f"import {ansible_internals.__name__} as reach\n"
    place = str(PLUGINS.parents[3])
    with tempfile.TemporaryDirectory() as home:  # where Ansible makes directories of its own
        return subprocess.run(
            [sys.executable, "-c", begin + code],
            env={"PYTHONPATH": place, "HOME": home, "LC_ALL": "C.UTF-8"},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip


def test_forget_collection_lets_ansibles_finder_make_the_packages() -> None:
    done = run(
        "reach.forget_collection()\n"
        "assert not [name for name in sys.modules if name.startswith('ansible_collections')]\n"
        "import ansible.cli.playbook\n"
        "from ansible.plugins.loader import init_plugin_loader\n"
        "init_plugin_loader()\n"
        "import ansible_collections\n"
        "print(type(ansible_collections.__loader__).__module__)\n"
    )
    assert done.stdout.startswith("ansible.utils.collection_loader"), done.stderr


def test_playbook_program_is_ansible_playbook() -> None:
    done = run("sys.exit(reach.playbook_program()(['--version']))")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ansible-playbook [core ")
    assert run("sys.exit(reach.playbook_program()(['/nonexistent.yml']))").returncode == 1


def test_load_modules_loads_what_a_play_needs() -> None:
    done = run("reach.load_modules()\nprint(sorted(set(reach.NEEDED) - set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr


def test_list_no_plugins_leaves_out_the_one_listing_that_playing_makes() -> None:
    """Any other call of the method gets what it asks for."""
    done = run(
        "reach.list_no_plugins()\n"
        "from ansible.plugins import loader\n"
        "for name in reach.LOADERS:\n"
        "    plugins = getattr(loader, name)\n"
        "    print(len(list(plugins.all(class_only=True))), len(list(plugins.all(path_only=True))) > 0)\n"
    )
    assert done.stdout == "0 True\n" * 3, done.stderr


def test_list_no_plugins_leaves_out_a_listing_that_ansible_still_makes() -> None:
    """Else it saves nothing any more: `PlaybookExecutor.run` calls it so."""
    from ansible.executor import playbook_executor

    text = inspect.getsource(playbook_executor.PlaybookExecutor.run)
    for name in ansible_internals.LOADERS:
        assert f"{name}.all(class_only=True)" in text


def test_remove_temporary_files_removes_the_directory_of_this_process() -> None:
    done = run(
        "import os, tempfile\n"
        "os.environ['ANSIBLE_LOCAL_TEMP'] = tempfile.mkdtemp()\n"
        "import pathlib\n"
        "reach.playbook_program()\n"
        "from ansible import constants\n"
        "place = pathlib.Path(constants.DEFAULT_LOCAL_TMP)\n"
        "assert place.is_dir() and str(os.getpid()) in place.name, place\n"
        "reach.remove_temporary_files()\n"
        "print(place.exists())\n"
        "os.rmdir(place.parent)\n"
    )
    assert done.stdout == "False\n", done.stderr


def test_setting_is_that_of_ansibles_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEFAULT_FORKS", "DEFAULT_TIMEOUT"):
        assert int(ansible_internals.setting(name)) > 0
        monkeypatch.setattr(constants, name, 7)
        assert ansible_internals.setting(name) == 7


MISSING = {
    "forget_collection": "ansible.utils.collection_loader",
    "playbook_program": "ansible.cli.playbook",
    "load_modules": "ansible.plugins.strategy.linear",
    "list_no_plugins": "ansible.plugins.loader",
    "remove_temporary_files": "ansible.constants",
    "setting": "ansible.constants",
}
"""For each reach what is missing in an ansible-core that we do not know."""


@pytest.mark.parametrize(("reach", "module"), MISSING.items())
def test_reach_without_what_it_reaches_says_what_has_changed(reach: str, module: str) -> None:
    given = "'DEFAULT_FORKS'" if reach == "setting" else ""
    hidden = (
        "import ansible, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    done = run(f"{hidden}try: reach.{reach}({given})\nexcept AnsibleChanged as error: print(error)")
    assert module in done.stdout, done.stderr


def test_each_reach_has_its_tests() -> None:
    """By its name, and what it reaches is written at it."""
    reaches = [
        name for name, function in vars(ansible_internals).items()
        if inspect.isfunction(function) and function.__module__ == ansible_internals.__name__ and name[0] != "_"
    ]  # fmt: skip
    assert set(reaches) == set(MISSING)
    for name in reaches:
        # since Python 3.13 the compiler takes the indentation out of docstrings
        assert re.search(r"^ *Reaches ", getattr(ansible_internals, name).__doc__ or "", re.MULTILINE), name
        assert [test for test in globals() if test.startswith(f"test_{name}_")], name


def imports(path: pathlib.Path) -> t.Iterator[str]:
    """What a file imports of Ansible, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            whole = node.module == "ansible"
            names = [f"ansible.{alias.name}" for alias in node.names] if whole else [node.module]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [one.value for one in node.args if isinstance(one, ast.Constant)]
        yield from (name for name in names if name.partition(".")[0] == "ansible")


def test_private_parts_of_ansible_are_imported_here_alone() -> None:
    own = pathlib.Path(ansible_internals.__file__)
    others = [path for path in PLUGINS.rglob("*.py") if path != own]
    found = {(str(path.relative_to(PLUGINS)), name) for path in others for name in imports(path)}
    assert len(found) > len(PUBLIC)
    assert {one for one in found if one[1] not in PUBLIC} == set()
    assert set(imports(own)) - PUBLIC
