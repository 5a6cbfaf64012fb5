# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr suspended`: jobs whose guests are on the disks of nodes, and the removal of those that nobody resumes."""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import sys
import typing as t

from ....module_utils.errors import UserFault, VTorqueError
from ....module_utils.job.batch.registry import open_batch
from ....module_utils.job.config.policy_file import load_usable
from ....module_utils.text import format_bytes_short
from ....module_utils.wire.messages import VERSION, SavedRequest
from ...bridge.checkpoints.parked import list_parked
from ...site import compute_nodes, saved_jobs
from ..output.json_output import add_json, print_json
from ..output.node_names import expand_names
from ..output.tables import table
from ..output.verbs import add_verb

if t.TYPE_CHECKING:
    from ....module_utils.job.config.parameters import Policy

HELP = "suspended jobs whose guests are on disks (root)"
LIST_EPILOG = """\
A job that the batch system has suspended is there where the site saves guests (suspend_guests: save).  It has a row
for each node.  A job that its owner has suspended (vmgr job suspend) has one row without a node: it is in
checkpoint_dir, and is listed on hosts that have that, but not with --nodes.

examples:
  vmgr suspended list                        of all nodes
  vmgr suspended list --nodes cn[1-4]        of these
  vmgr suspended list --query '[].job_id'    for programs
"""
DELETE_EPILOG = """\
Saved guests go with their job: delete that with the batch system's own command.  This is for what has stayed of a job
that has ended or is held; vtorque-sweep on the node removes it, too.  A job that can be resumed is refused.

example:
  vmgr suspended delete 4711
"""
FAILED = 1
"""Exit status where a node did not answer, or would not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `vmgr suspended`."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list | delete")
    delete = add_verb(verbs, "delete", "remove saved guests of a job that has ended or is held", DELETE_EPILOG)
    delete.add_argument("job", metavar="JOB", help="number or id of the job")
    listing = add_verb(verbs, "list", "jobs whose guests are on disks", LIST_EPILOG)
    for one in (listing, delete):
        one.add_argument(
            "--node",
            "--nodes",
            dest="nodes",
            metavar="NODE",
            nargs="+",
            help="ask these: cn1 cn2, or cn[01-16]; else all",
        )
        add_json(one)


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Do what was asked for; see `Subject` of `main.py`.

    Raises:
        UserFault: who calls is not root; the job is not known by such a name.
        SiteFault: the batch server does not tell of its nodes.
    """
    if os.geteuid() != 0:
        raise UserFault(f"suspended {call.verb}", "asks nodes as root", "call it as root")
    policy, _broken = load_usable(load)
    nodes = expand_names(call.nodes) if call.nodes else compute_nodes.list_nodes(policy)
    job_id = _whole_id(call.job, policy) if call.verb == "delete" else ""
    request = SavedRequest(VERSION, "forget" if job_id else "saved", job_id)
    answers = saved_jobs.query_nodes(
        request, nodes, ssh_timeout_s=float(policy.ssh_timeout), prefix=policy.prefix_nodes
    )
    found = [answer for answer in answers if isinstance(answer, dict)]
    if job_id:
        _print_removed(call, {node: one["removed"] for node, one in zip(nodes, answers, strict=True) if one in found})
    else:
        rows = [row for answer in found for row in answer.get("saved", ())]
        if not call.nodes and policy.checkpoint_dir is not None:
            rows += list_parked(pathlib.Path(policy.checkpoint_dir), open_batch(policy))
        _print_rows(call, rows)
    for error in answers:
        if isinstance(error, VTorqueError):
            print(f"vmgr: {error}", file=sys.stderr)
    return 0 if len(found) == len(answers) else FAILED


def _whole_id(named: str, policy: Policy) -> str:
    """The id of a job that the batch server may have forgotten: then it must be whole."""
    if "." in named:
        return named
    return open_batch(policy).find_id(named)


def _print_rows(call: argparse.Namespace, rows: list[dict[str, t.Any]]) -> None:
    if call.json:
        print_json(call, rows)
        return
    table(
        [
            {
                "job": row["job_id"],
                "user": row["user"],
                "since": datetime.datetime.fromtimestamp(row["since"]).astimezone().isoformat(" ", "seconds"),
                "size": format_bytes_short(row["bytes"]),
                "guests": row["guests"],
                "node": row["node"] or "-",
            }
            for row in rows
        ]
    )


def _print_removed(call: argparse.Namespace, removed: dict[str, list[str]]) -> None:
    if call.json:
        print_json(call, removed)
        return
    lines = [f"{node}: {', '.join(things)}" for node, things in removed.items() if things]
    print("\n".join(lines) or "nothing of it is on the disk of a node")
