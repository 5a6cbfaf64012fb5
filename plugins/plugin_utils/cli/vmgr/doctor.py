# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr doctor`: checks whether this node, or the whole site, is fit for virtual machines, and names the remedies."""

from __future__ import annotations

import argparse
import os
import typing as t

from ....module_utils.errors import SiteFault, UserFault
from ....module_utils.job.batch.api import BatchNode, BatchSystem
from ....module_utils.job.batch.registry import open_batch
from ....module_utils.job.config.parameters import Policy
from ....module_utils.job.config.policy_file import load_usable
from ....module_utils.job.request.host_expressions import host_matches
from ....module_utils.wire.health_report import CHECKS, LONGEST_S, Report
from ...bridge.node_settings import host_name
from ...bridge.upkeep import examine
from ...site.compute_nodes import is_compute_node
from ..output.checks_table import print_table
from ..output.json_output import add_json, print_json
from ..output.node_names import expand_names
from ..output.progress import counted

HELP = "is a node, or the site, fit for virtual machines? (root)"
BATCH_S = 10.0
NEEDS, UNASKED = 1, 4

EPILOG = """\
Without an option: this node, where it is a compute node; else the site: this front end, and all nodes.

exit status:
  0  all is well; there may be a word all the same
  1  a host needs attention; it is said which, what for, and what to do
  2  the command line is wrong
  3  the batch server does not tell of its nodes
  4  a node could not be asked, whatever else there is

examples:
  vmgr doctor                                  a table: a row a check, nodes that agree together
  vmgr doctor --node cn1 cn[03-16] --json      for programs
  vmgr doctor --query '[?!well].node'          which hosts need attention
  vmgr doctor --local --brief                  one line, for a node health check (NHC)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `vmgr doctor`."""
    parser.epilog = EPILOG
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--local", action="store_true", help="this node")
    which.add_argument(
        "--node", "--nodes", dest="nodes", metavar="NODE", nargs="+", help="these compute nodes: cn1 cn2, or cn[01-16]"
    )
    which.add_argument("--all", action="store_true", help="every compute node of the batch system")
    how = parser.add_mutually_exclusive_group()
    add_json(parser, group=how)
    how.add_argument(
        "--brief",
        action="store_true",
        help="one line a node, without a table; with --local the batch server is asked little",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        default=examine.EXAMINATION_S,
        help="seconds for the examination of a node (%(default).0f)",
    )


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Examine, and tell; see `Subject` of `main.py`.

    Raises:
        UserFault: who calls is not root.
        VTorqueError: the nodes are not known.
    """
    if os.geteuid() != 0:
        raise UserFault("doctor", "looks at what only root can see", "call it as root")
    if call.brief and call.json:
        raise UserFault("--brief", "has nothing to do with --query")
    if not 1 <= call.timeout <= LONGEST_S:
        raise UserFault(f"--timeout {call.timeout:g}", f"from 1 to {LONGEST_S} seconds")
    here = host_name()
    local = call.local or (call.nodes is None and not call.all and is_compute_node(load))
    if local:
        # a health check runs on every node, every few minutes
        reports = [examine.examine_here(load, here, call.timeout, thorough=not (call.local and call.brief))]
    else:
        reports = _site(call, load, here)
    if call.json:
        print_json(call, reports[0].to_dict() if call.local else [report.to_dict() for report in reports])
    elif call.brief:
        _brief(reports)
    else:
        print_table(reports, CHECKS)
        print(total_of(reports))
    if not all(report.asked for report in reports):
        return UNASKED
    return NEEDS if examine.needing(reports) else 0


def _site(call: argparse.Namespace, load: t.Callable[[], Policy], here: str) -> list[Report]:
    policy, _broken = load_usable(load)  # what is broken is a finding
    batch = open_batch(policy, front_end=host_matches(policy.regex_fe, here), timeout_s=BATCH_S)
    known = _known(batch, needed=call.nodes is None)
    names = expand_names(call.nodes) if call.nodes is not None else tuple(known)
    if not names:
        raise UserFault("no node", "is known to the batch system")
    reports = []
    if call.nodes is None and not is_compute_node(load):
        reports.append(examine.examine_front_end(load, here, batch, known))
    with counted("asking nodes", len(names), wanted=not (call.json or call.brief)) as advance:
        asked = examine.examine_nodes(
            names,
            ssh_timeout_s=float(policy.ssh_timeout),
            timeout_s=call.timeout,
            prefix=policy.prefix_nodes,
            advance=lambda report: advance(report.node),
        )
    return [*reports, *examine.judge_together(asked, policy, here, known)]


def _known(batch: BatchSystem, *, needed: bool) -> dict[str, BatchNode]:
    try:
        return {node.name: node for node in batch.nodes()}
    except SiteFault:
        if needed:
            raise
        return {}


def _brief(reports: t.Sequence[Report]) -> None:
    for report in reports:
        state = "ok" if report.well else "needs attention"
        print(": ".join([report.node, "; ".join([state, *report.problems])]))


def total_of(reports: t.Sequence[Report]) -> str:
    """Return the last line of a table: how many hosts need attention.

    Args:
        reports: of the hosts.
    """
    sick = len(examine.needing(reports))
    if len(reports) == 1:
        return f"{reports[0].node} {'needs attention' if sick else 'is well'}."
    silent = sum(not report.asked for report in reports)
    asked = f" {silent} could not be asked." if silent else ""
    need = f"{sick} of {len(reports)} hosts {'needs' if sick == 1 else 'need'} attention."
    return (need if sick else f"All {len(reports)} hosts are well.") + asked
