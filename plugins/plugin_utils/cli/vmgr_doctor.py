# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr doctor`: is this node, or is every node, fit for virtual machines, and what is to be done where it is not."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import typing as t

from ...module_utils.errors import UserFault, VTorqueError
from ...module_utils.findings import BAD, CHECKS, NONE, OK, WARN, Report
from ...module_utils.job.batch import open_batch
from ...module_utils.job.parameters import Policy
from ...module_utils.job.policy import host_matches
from .. import doctor_call
from .json_output import add_json, tell
from .vtorque_node import host_name

HELP = "is a node fit for virtual machines? (root)"
COLOURS = {OK: "green", WARN: "yellow", BAD: "bold red", NONE: "dim"}
WIDE = 1000
"""Columns where nobody looks: a line of a file is not folded."""
BATCH_S = 10.0
NEEDS = 1

EPILOG = """\
Without an option: this node, where it is a compute node; else all of them.

exit status:
  0  all is well; there may be a word all the same
  1  a node needs somebody; it is said what for, and what to do
  2  the command line is wrong

examples:
  vmgr doctor                          a table
  vmgr doctor --nodes cn1,cn2 --json   for programs
  vmgr doctor --local --brief          one line, for a node health check (NHC)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `vmgr doctor`."""
    parser.epilog = EPILOG
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--local", action="store_true", help="this node")
    which.add_argument("--nodes", metavar="LIST", help="these compute nodes, with commas between them")
    which.add_argument("--all", action="store_true", help="every compute node of the batch system")
    how = parser.add_mutually_exclusive_group()
    add_json(parser, group=how)
    how.add_argument("--brief", action="store_true", help="one line a node, without a table")
    parser.add_argument(
        "--timeout", type=float, metavar="S", default=doctor_call.EXAMINATION_S,
        help="seconds for the examination of a node (%(default).0f)",
    )  # fmt: skip


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Examine, and tell.

    Args:
        call: the arguments.
        load: gives the site's policy.

    Returns:
        The exit status.

    Raises:
        UserFault: who calls is not root.
        VTorqueError: the nodes are not known.
    """
    if os.geteuid() != 0:
        raise UserFault("doctor", "looks at what only root can see", "call it as root")
    if call.brief and call.json:
        raise UserFault("--brief", "has nothing to do with --query")
    if not 1 <= call.timeout <= 3600:
        raise UserFault(f"--timeout {call.timeout:g}", "from 1 to 3600 seconds")
    here = host_name()
    local = call.local or (call.nodes is None and not call.all and _is_compute_node(load))
    reports: t.Sequence[Report] = (
        [doctor_call.examine_here(load, here, call.timeout)] if local else _others(call, load())
    )
    if call.json:
        tell(call, reports[0].to_dict() if call.local else [report.to_dict() for report in reports])
    elif call.brief:
        _brief(reports)
    else:
        _show(reports)
    return NEEDS if doctor_call.needing(reports) else 0


def _is_compute_node(load: t.Callable[[], Policy]) -> bool:
    try:
        torque_home = load().torque_home
    except VTorqueError:  # which is what a compute node would find
        torque_home = Policy().torque_home
    return pathlib.Path(torque_home, "mom_priv").is_dir()


def _others(call: argparse.Namespace, policy: Policy) -> tuple[Report, ...]:
    if call.nodes is not None:
        names = tuple(dict.fromkeys(call.nodes.replace(",", " ").split()))
    else:
        front_end = host_matches(policy.regex_fe, host_name())
        batch = open_batch(policy, front_end=front_end, timeout_s=BATCH_S)
        names = tuple(node.name for node in batch.nodes())
    if not names:
        raise UserFault("no node", "was named" if call.nodes is not None else "is known to the batch system")
    return doctor_call.ask_nodes(names, ssh_timeout_s=float(policy.ssh_timeout), timeout_s=call.timeout)


def _brief(reports: t.Sequence[Report]) -> None:
    for report in reports:
        state = "ok" if report.well else "needs you"
        print(": ".join([report.node, "; ".join([state, *report.words])]))


def _show(reports: t.Sequence[Report]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else WIDE, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("node", *CHECKS):
        table.add_column(title, no_wrap=True)
    for report in reports:
        cells = [Text(report.node)]
        for check in CHECKS:
            found = report.finding(check)
            cells.append(Text(found.shown, COLOURS[found.state]) if found else Text("-", COLOURS[NONE]))
        table.add_row(*cells)
    with console.capture() as shown:
        console.print(table)
    print("\n".join(line.rstrip() for line in shown.get().splitlines()))
    for report in reports:
        for words in report.words:
            print(f"{report.node}  {words}")
    print(_total(reports))


def _total(reports: t.Sequence[Report]) -> str:
    sick = len(doctor_call.needing(reports))
    if len(reports) == 1:
        return f"{reports[0].node} {'needs you' if sick else 'is well'}."
    return f"{sick} of {len(reports)} nodes need you." if sick else f"All {len(reports)} nodes are well."
