# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of roles, played by Ansible itself on this host: commands of a batch system are stand-ins."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

ROLES = COLLECTION_DIR.parent / "roles"
RESULT = re.compile(r"^(\S+) \| (\w+!?) => (\{.*\})$", re.MULTILINE)
"""A result of a task, as the callback `oneline` has it."""


def play(
    system: str, place: pathlib.Path, role: str, tasks: list[t.Any], **variables: t.Any
) -> tuple[bool, list[dict[str, t.Any]]]:
    """Play tasks of a role on this host.

    Args:
        system: the batch system, whose variables the role has.
        place: a directory with stand-ins for its commands.
        role: its name.
        tasks: as in a playbook.
        variables: of the play; those of the role come before them.

    Returns:
        Did all of them succeed, and the result of each that was played.
    """
    policy = {
        "pbs_qsub_on_fe": str(place / "qsub"),
        "pbs_qsub_on_nodes": str(place / "qsub"),
        "torque_home": str(place / "pbs"),
        "prefix_nodes": "/usr/local/vtorque",
        "slurm_bin": None,
        "vm_node_property": None,
        "batch_system": system,
    }
    site = {"common_configuration": {"policy": policy, "prologalarm": {"seconds": 300}}, "__common_faults": []}
    given = [
        {"ansible.builtin.include_vars": {"file": str(ROLES / role / f"vars/{name}.yml")}}
        for name in ("main", f"batch/{system}")
    ]
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (place / "inventory.json").write_text(json.dumps({"all": {"hosts": {"p1": host}}}))
    site["role_path"] = str(ROLES / role)  # a lookup of the role's own files
    one = {"hosts": "all", "gather_facts": False, "vars": {**site, **variables}, "tasks": given + tasks}
    (place / "play.json").write_text(json.dumps([one]))
    callback = {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.oneline", "ANSIBLE_LOCALHOST_WARNING": "false"}
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", place / "inventory.json", place / "play.json"],
        check=False, capture_output=True, text=True, env={**os.environ, **callback},
    )  # fmt: skip
    return done.returncode == 0, [json.loads(result) for _host, _state, result in RESULT.findall(done.stdout)]


def included(system: str, role: str, name: str) -> dict[str, t.Any]:
    """A task that plays a role's file of tasks for a batch system."""
    return {"ansible.builtin.include_tasks": {"file": str(ROLES / role / f"tasks/batch/{system}" / name)}}
