# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes the role `compute_node` refuses for their number, by Ansible itself."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.templates import COLLECTION_DIR

VARIABLES = COLLECTION_DIR.parent / "roles/compute_node/vars/main.yml"


def twins(place: pathlib.Path, nodes: dict[str, tuple[int, bool]], portion: int) -> dict[str, list[str]]:
    """Of each node, with its number and whether it has it already: with whom it would share it."""
    hosts = {name: {"number": number, "kept": kept} for name, (number, kept) in nodes.items()}
    (place / "inventory.json").write_text(json.dumps({"vtorque_nodes": {"hosts": hosts}}))
    tasks = [
        {"ansible.builtin.set_fact": {
            "__compute_node_kept": "{{ kept }}",
            "common_configuration": {"policy": {"node_number": "{{ number }}"}},
        }},
        {"ansible.builtin.include_vars": {"file": str(VARIABLES)}},
        {"ansible.builtin.copy": {
            "content": "{{ __compute_node_twins | to_json }}", "dest": f"{place}/{{{{ inventory_hostname }}}}.twins",
        }},
    ]  # fmt: skip
    play = {"hosts": "vtorque_nodes", "connection": "local", "gather_facts": False, "serial": portion, "tasks": tasks}
    (place / "play.json").write_text(json.dumps([play]))
    subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", place / "inventory.json", place / "play.json",
         "-e", f"ansible_python_interpreter={sys.executable}"],
        check=True, env={**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false"},
    )  # fmt: skip
    return {name: json.loads((place / f"{name}.twins").read_text()) for name in nodes}


@pytest.mark.parametrize("portion", [3, 1])
def test_the_node_that_has_its_number_goes_on(tmp_path: pathlib.Path, portion: int) -> None:
    # n2 was taken out, and n4 came to the place of n3's number
    nodes = {"n1": (1, True), "n3": (3, True), "n4": (3, False)}
    assert twins(tmp_path, nodes, portion) == {"n1": [], "n3": [], "n4": ["n3"]}


@pytest.mark.parametrize("kept", [True, False])
def test_two_that_have_it_or_want_it_are_both_refused(tmp_path: pathlib.Path, kept: bool) -> None:
    assert twins(tmp_path, {"n1": (1, kept), "n2": (1, kept)}, 2) == {"n1": ["n2"], "n2": ["n1"]}
