# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that roles bring to hosts."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import typing as t

import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

FILES = COLLECTION_DIR.parent / "roles/common/files"


def run(program: str, argument: t.Any, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(FILES / program), json.dumps(argument), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_list_present_counts_a_dangling_link(placed: list[str]) -> None:
    done = run("list_present.py", placed)
    assert json.loads(done.stdout) == placed[:4]


def test_permissions_program_of_the_batch_system_stands_alone(tmp_path: pathlib.Path) -> None:
    """The role for nodes brings this one file to hosts that have nothing of the collection yet."""
    variables = (COLLECTION_DIR.parent / "roles/compute_node/vars/batch/torque.yml").read_text(encoding="utf-8")
    (name,) = re.findall(r"'(/plugins/[a-z_/]+\.py)'", variables)
    alone = tmp_path / "alone.py"
    alone.write_bytes((COLLECTION_DIR.parent / name.lstrip("/")).read_bytes())
    done = subprocess.run(
        [sys.executable, "-I", alone, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def strings(node: t.Any) -> t.Iterator[str]:
    """Every text in a YAML file."""
    if isinstance(node, str):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from strings(child)


def test_no_template_of_a_role_has_a_line_feed_that_ansible_takes_for_two_characters() -> None:
    """In a text that YAML does not unescape, Ansible keeps the backslash of `'\\n'`, but in a regular expression."""
    found = [
        f"{path.name}: {text}"
        for path in sorted((COLLECTION_DIR.parent / "roles").glob("*/*/**/*.yml"))
        for text in strings(yaml.safe_load(path.read_text(encoding="utf-8")))
        if "{{" in text and re.search(r"(~ |join\()'[^']*\\n", text)
    ]
    assert found == []
