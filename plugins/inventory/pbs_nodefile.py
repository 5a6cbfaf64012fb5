# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts from the nodes of a batch job."""

from __future__ import annotations

DOCUMENTATION = r"""
name: pbs_nodefile
short_description: Hosts from the nodes of a PBS/Torque job
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Makes one host of each node of a job, in the group C(job_nodes), and in C(mother_superior) (the first node) or
    C(sisters) (all others).
  - The nodes come from the batch system, which the submitter of a job cannot forge, or from a node file
    alone, which also works outside a batch system.
  - The machine that Ansible runs on is reached without a connection. Its name may be short in one place and full in the
    other.
  - Every host has the variable C(vtorque_rank), its place among the job's nodes, and, when O(job_id) is given,
    C(vtorque_job_id), C(vtorque_start), C(vtorque_run_dir), C(vtorque_config) and perhaps C(vtorque_nodefile).
    No variable holds anything that the submitter chose.
options:
  plugin:
    description: Marks a file as one for this plugin.
    type: str
    required: true
    choices: [mikelangelo.vtorque.pbs_nodefile]
  job_id:
    description:
      - The job, as the batch system names it. Its nodes are asked of the batch server.
    type: str
  nodefile:
    description:
      - A file with the name of a node in each line, as batch systems of the PBS family give one to a job. A node may
        stand there several times, also not in a row.
      - With O(job_id) it is only compared. A node file that says something else than the server does is refused.
    type: path
  config:
    description:
      - The site's configuration, which says how the batch system is reached. Only read with O(job_id).
    type: path
    default: /etc/vtorque/vtorque.yml
seealso:
  - plugin: mikelangelo.vtorque.job_guests
    plugin_type: module
notes:
  - The name of the inventory file must end with C(pbs_nodefile.yml) or C(pbs_nodefile.yaml).
  - When the directory of the inventory file is the one of a start of the job, and holds root's plan, the nodes come
    from there. So a job can be cleaned up while its server is gone, or after it was started again elsewhere. Before
    there is a plan, what the prologue was told by the batch server is taken from there.
"""

EXAMPLES = r"""
---
# job.pbs_nodefile.yml: the nodes of a job
plugin: mikelangelo.vtorque.pbs_nodefile
job_id: 4711.head

---
# mine.pbs_nodefile.yml: the nodes of a file, without a batch system
plugin: mikelangelo.vtorque.pbs_nodefile
nodefile: /home/alice/nodes
"""

import pathlib
import re
import socket
import typing as t

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

from ..module_utils.errors import VTorqueError
from ..module_utils.job.batch import job_snapshot
from ..module_utils.job.batch.host_match import same_host
from ..module_utils.job.batch.registry import open_batch, open_node
from ..module_utils.job.config import policy_file
from ..module_utils.state import layout
from ..module_utils.system import files
from ..module_utils.wire.messages import HOST_NAME, JOB_ID
from ..plugin_utils.job_actions.action_base import JobPlace, leave_error

SUFFIXES = ("pbs_nodefile.yml", "pbs_nodefile.yaml")
NODEFILE_LIMIT = 1 << 24
"""Bytes of a node file: 100,000 slots with long names need a third of it."""


class InventoryModule(BaseInventoryPlugin):
    """The inventory plugin."""

    NAME = "mikelangelo.vtorque.pbs_nodefile"

    def verify_file(self, path: str) -> bool:
        """Return whether the file, by its name, is one for this plugin."""
        return bool(super().verify_file(path)) and path.endswith(SUFFIXES)

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Read the file and add the hosts.

        Raises:
            AnsibleParserError: says what is wrong and what to do.
        """
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        try:
            nodes, variables = self._nodes(pathlib.Path(path).parent)
        except VTorqueError as error:
            leave(error, str(self.get_option("job_id")), pathlib.Path(path).parent)
            raise AnsibleParserError(f"{path}: {error}") from error
        self._populate(inventory, nodes, variables)

    def _nodes(self, directory: pathlib.Path) -> tuple[tuple[str, ...], dict[str, t.Any]]:
        job_id, nodefile = self.get_option("job_id"), self.get_option("nodefile")
        lines = read_nodefile(pathlib.Path(nodefile)) if nodefile else None
        if not job_id:
            if lines is None:
                raise VTorqueError("neither job_id nor nodefile", "is given", "name the job, or a file with its nodes")
            return distinct(lines), {}
        if not re.fullmatch(JOB_ID, job_id):
            raise VTorqueError(f"job_id={job_id[:80]!r}", "not of the form number.server or number[index].server")
        nodes, start, run_dir = self._query_server(job_id, directory, lines)
        variables = {"vtorque_job_id": job_id, "vtorque_start": start, "vtorque_run_dir": str(run_dir)}
        variables["vtorque_config"] = self.get_option("config")
        return nodes, variables | ({"vtorque_nodefile": nodefile} if nodefile else {})

    def _query_server(
        self, job_id: str, directory: pathlib.Path, lines: tuple[str, ...] | None
    ) -> tuple[tuple[str, ...], int, pathlib.Path]:
        known = planned(job_id, directory)
        if known is not None:
            return known
        own = start_of(job_id, directory)
        job = None if own is None else job_snapshot.read_snapshot(job_id, directory)
        if job is None:
            job = open_batch(self._policy()).job(job_id)
        if own not in (None, job.start_count):
            # the job was started again meanwhile, perhaps elsewhere: the nodes of that start are none of ours
            raise VTorqueError(f"start {own} of job {job_id}", f"the server speaks of start {job.start_count}")
        if not job.nodes:
            raise VTorqueError(f"job {job_id}", f"has no nodes (state {job.state})", "it was not started")
        if lines is not None:
            open_node(self._policy().batch_system).check_node_file("\n".join(lines), job.slot_hosts)
        run_dir = layout.run_directory(job_id, job.start_count)
        return job.nodes, job.start_count, directory if directory.name == run_dir.name else run_dir

    def _policy(self) -> policy_file.Policy:
        return policy_file.load(pathlib.Path(self.get_option("config")))

    def _populate(self, inventory: t.Any, nodes: tuple[str, ...], variables: dict[str, t.Any]) -> None:
        here = socket.gethostname()
        for group in ("job_nodes", "mother_superior", "sisters"):
            inventory.add_group(group)
        for rank, node in enumerate(nodes):
            if not re.fullmatch(HOST_NAME, node):
                raise AnsibleParserError(f"{node[:80]!r} is not of the form of a host name")
            inventory.add_host(node, group="job_nodes")
            inventory.add_child("sisters" if rank else "mother_superior", node)
            inventory.set_variable(node, "ansible_connection", "local" if same_host(node, here) else "ssh")
            for name, value in {"vtorque_rank": rank, **variables}.items():
                inventory.set_variable(node, name, value)


def read_nodefile(path: pathlib.Path) -> tuple[str, ...]:
    """The lines of a node file: a host name a slot.

    Raises:
        VTorqueError: it cannot be read, is empty, or holds something else than host names.
    """
    try:
        with path.open(encoding="ascii") as stream:
            names = tuple(stream.read(NODEFILE_LIMIT).split())
    except (OSError, ValueError) as error:
        hint = "a text file with the name of a node in each line"
        raise VTorqueError(f"nodefile={path}", str(error), hint) from error
    for name in names:
        if not re.fullmatch(HOST_NAME, name):
            raise VTorqueError(f"nodefile={path}", f"{name[:80]!r} is not of the form of a host name")
    if not names:
        raise VTorqueError(f"nodefile={path}", "it names no node")
    return names


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Each host once, under the name and in the order of its first line; a short name may come after a full one."""
    found: list[str] = []
    by_label: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        bucket = by_label.setdefault(name.lower().partition(".")[0], [])
        if not any(same_host(name, other) for other in bucket):
            bucket.append(name)
            found.append(name)
    return tuple(found)


def start_of(job_id: str, directory: pathlib.Path) -> int | None:
    """Which start of the job the directory belongs to, if it is root's directory of one."""
    _job, _dot, start = directory.name.rpartition(".")
    if not re.fullmatch(JOB_ID, job_id) or not start.isdigit():
        return None
    return int(start) if layout.job_key(job_id, int(start)) == directory.name else None


def leave(error: VTorqueError, job_id: str, directory: pathlib.Path) -> None:
    """Leave the error where the job's hook looks for it, as the actions do."""
    start = start_of(job_id, directory)
    if start is not None:
        leave_error(JobPlace(job_id, start, directory), "inventory", error)


def planned(job_id: str, directory: pathlib.Path) -> tuple[tuple[str, ...], int, pathlib.Path] | None:
    """The nodes that root's plan beside the inventory file names, or None when there is no plan of this job."""
    start = start_of(job_id, directory)
    if start is None:
        return None
    try:
        plan = files.read_json(directory / layout.PLAN, limit=1 << 26)
    except FileNotFoundError:
        return None
    parts = [str(part["node"]) for part in plan["node_parts"]]
    return tuple(dict.fromkeys([str(plan["mother_superior"]), *parts])), start, directory
