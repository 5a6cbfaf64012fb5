# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every module of `module_utils` loads where Python has nothing but its own library, as ansible-test's sanity test
`import` wants it; what a library is missing for is found when it is used.

That test loads for each file anew all that the file imports, so `make test` has it for modules, actions and the
inventory alone, and `FULL=1` for all.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

COLLECTION = templates.COLLECTION_DIR.parent
PREFIX = "ansible_collections.mikelangelo.vtorque."
LOAD = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
failed = {}
for name in json.load(sys.stdin):
    before = dict(sys.modules)
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}"
    changed = [known for known, module in before.items() if sys.modules.get(known) is not module]
    if changed:
        failed[name] = f"{changed} changed in sys.modules"
print(json.dumps(failed))
"""


def load_alone(root: pathlib.Path, names: list[str]) -> dict[str, str]:
    """Return why modules do not load, in a Python without any site's packages."""
    python = pathlib.Path(sys.base_prefix) / "bin/python3"
    done = subprocess.run(
        [python, "-I", "-S", "-c", LOAD, str(root)], input=json.dumps(names), capture_output=True, text=True,
        check=True, timeout=300,
    )  # fmt: skip
    assert done.stderr == ""
    return dict(json.loads(done.stdout))


def test_module_utils_loads_without_any_library() -> None:
    files = sorted((COLLECTION / "plugins/module_utils").rglob("*.py"))
    names = [PREFIX + ".".join(path.relative_to(COLLECTION).with_suffix("").parts) for path in files]
    assert len(names) > 400
    root = pathlib.Path(templates.__file__).parents[6]
    assert load_alone(root, [name.removesuffix(".__init__") for name in names]) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import jinja2", "ModuleNotFoundError: No module named 'jinja2'"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import sys\nsys.modules['json'] = None", "['json'] changed in sys.modules"),
    ],
)
def test_module_that_does_not_load_alone_is_named(tmp_path: pathlib.Path, text: str, why: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "good.py").write_text("import json")
    assert load_alone(tmp_path, ["good", "bad"]) == {"bad": why}
