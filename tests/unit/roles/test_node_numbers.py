# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which number the role `compute_node` gives a node, and which nodes it refuses for theirs, by Ansible itself."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

ROLE = COLLECTION_DIR.parent / "roles/compute_node"
AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
"""A host that nobody reaches."""
SUCCESS = re.compile(r"^(\S+) \| SUCCESS => (\{.*\})$", re.MULTILINE)
"""A result of a task, as the callback `oneline` has it: the host and JSON."""
NOTHING = "end"
"""What a node says on which nothing is installed."""


def numbered(
    place: pathlib.Path,
    nodes: dict[str, str | None],
    *,
    portion: int = 0,
    limit: str = "all",
    given: dict[str, int] | None = None,
) -> dict[str, tuple[int, list[str], list[str]]]:
    """Play it.

    Args:
        nodes: what each of the group says when it is asked; None: it is away.
        portion: how many are played at the same time; 0: all.
        limit: which are played.
        given: numbers that the site says.

    Returns:
        Of each node that was played its number, with whom it shares it, and who is silent and may have it.
    """
    hosts = {}
    for name, says in nodes.items():
        (place / f"{name}.says").write_text(f"{says}\n")
        python = place / f"{name}.python"
        python.write_text(f'#!/bin/sh\nSAYS={place}/{name}.says exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        hosts[name] = {"ansible_connection": "local", "ansible_python_interpreter": str(python)} if says else AWAY
        if name in (given or {}):
            hosts[name] = {**hosts[name], "vtorque_node_number": (given or {})[name]}
    (place / "inventory.json").write_text(json.dumps({"vtorque_nodes": {"hosts": hosts}}))
    output = "{{ [common_configuration.policy.node_number, __compute_node_twins, __compute_node_uncertain] | to_json }}"
    tasks = [
        {"ansible.builtin.include_vars": {"file": str(ROLE / "vars/main.yml")}},
        {"ansible.builtin.set_fact": {"__compute_node_number_question": ["/bin/sh", "-c", 'cat "$SAYS"']}},
        {"ansible.builtin.include_tasks": {"file": str(ROLE / "tasks/number.yml")}},
        {"ansible.builtin.set_fact": {"common_configuration": {"policy": {
            "node_number": "{{ vtorque_node_number | default(__compute_node_settings.node_number) }}",
        }}}},
        {"ansible.builtin.set_fact": {
            "__compute_node_kept": "{{ __compute_node_former_number == common_configuration.policy.node_number }}",
        }},
        {"ansible.builtin.debug": {"msg": output}},
    ]  # fmt: skip
    play = {"hosts": "vtorque_nodes", "gather_facts": False, "serial": portion or "100%", "tasks": tasks}
    (place / "play.json").write_text(json.dumps([play]))
    callback = {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.oneline"}
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", place / "inventory.json", place / "play.json", "-l", limit],
        check=False, capture_output=True, text=True, env={**os.environ, **callback},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = [(host, json.loads(result)) for host, result in SUCCESS.findall(done.stdout)]
    return {host: json.loads(result["msg"]) for host, result in results if "msg" in result}


def has(number: int, *known: str) -> str:
    return "\n".join([f"number {number}", *(f"known {name}" for name in known), NOTHING])


@pytest.mark.parametrize("portion", [3, 1])
def test_node_that_has_its_number_goes_on(tmp_path: pathlib.Path, portion: int) -> None:
    # n2 was taken out, and n4 came to the place of n3's number
    nodes = {"n1": has(1), "n3": has(3), "n4": NOTHING}
    output = numbered(tmp_path, nodes, portion=portion)
    assert output == {"n1": [1, [], []], "n3": [3, [], []], "n4": [3, ["n3"], []]}


@pytest.mark.parametrize(("given", "twins"), [({}, ["n3"]), ({"n4": 4}, [])])
def test_new_node_asks_those_that_are_not_in_the_run(
    tmp_path: pathlib.Path, given: dict[str, int], twins: list[str]
) -> None:
    nodes = {"n1": has(1), "n3": has(3), "n4": NOTHING}
    assert numbered(tmp_path, nodes, limit="n4", given=given) == {"n4": [given.get("n4", 3), twins, []]}


def test_new_node_in_an_early_portion_asks_the_later_ones(tmp_path: pathlib.Path) -> None:
    assert numbered(tmp_path, {"n4": NOTHING, "n1": has(1)}, portion=1)["n4"] == [1, ["n1"], []]


@pytest.mark.parametrize(
    ("others", "given", "silent"),
    [
        (has(1, "n3"), {}, ["n3"]),
        # where ssh is the site's own, nobody knows who was there
        (has(1), {}, ["n3"]),
        (has(1, "n2"), {}, []),
        (NOTHING, {}, []),
    ],
)
def test_number_that_a_silent_node_may_have_is_not_given(
    tmp_path: pathlib.Path, others: str, given: dict[str, int], silent: list[str]
) -> None:
    nodes = {"n1": others, "n3": None, "n4": NOTHING}
    assert numbered(tmp_path, nodes, limit="n4", given=given) == {"n4": [given.get("n4", 3), [], silent]}


def test_node_with_a_number_asks_no_other(tmp_path: pathlib.Path) -> None:
    assert numbered(tmp_path, {"n1": has(7), "n2": None}, limit="n1") == {"n1": [7, [], []]}


@pytest.mark.parametrize("says", [has(1), NOTHING])
def test_two_that_have_it_or_want_it_are_both_refused(tmp_path: pathlib.Path, says: str) -> None:
    output = numbered(tmp_path, {"n1": says, "n2": says}, given={"n1": 1, "n2": 1})
    assert output == {"n1": [1, ["n2"], []], "n2": [1, ["n1"], []]}
