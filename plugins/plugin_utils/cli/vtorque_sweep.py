# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque-sweep: take from this node what belongs to no living start, take back our note, hand over what waits."""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
import syslog
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.node import sweep
from ...module_utils.state import event_log
from ...module_utils.system.clock import Deadline
from ...module_utils.text import printable
from ..bridge.node_settings import host_name
from ..bridge.upkeep import node_sweep
from ..bridge.upkeep.node_sweep import Report
from .output import messages
from .output.json_output import add_json, print_json

PROGRAM = "vtorque-sweep"
DEADLINE_S = 300.0
LAST_S = 30
"""Seconds after the deadline at which the kernel ends us, wherever we hang."""
LEFT = 1
MANY = 8

EPILOG = f"""\
What is taken away: virtual machines, their directories, slots and processes, and run directories, of starts of jobs
that are over.  A start stays when somebody is making its machines, its job's shell lives, or the batch system has
something of its job on this node.  Of the others the batch server is asked, and only what it calls over at two looks
that are {sweep.TWICE_S:.0f} s apart goes: call it again after a minute.  What is of an earlier boot of the node goes at
once.

Records of jobs that the front end has not got yet are handed over, the oldest first, until it turns out to be away.
That they wait changes no exit status: vmgr doctor tells of it.

exit status:
  0  all is well now
  1  something is left, is not known, or is too much at once; it is said what, and why
  2  the command line is wrong

examples:
  vtorque-sweep            what the timer does every two minutes
  vtorque-sweep --boot     at boot, before the batch system starts
  vtorque-sweep --all      more than {sweep.MASS} starts at once, after you have looked at them
"""


def main() -> int:
    """The program; returns its exit status."""
    # sshd and MOM give root their own; what is made here must be passable
    os.umask(0o022)
    signal.alarm(int(DEADLINE_S) + LAST_S)
    syslog.openlog(PROGRAM, 0, syslog.LOG_DAEMON)
    return messages.run(PROGRAM, lambda: run(sys.argv[1:]))


def run(
    argv: t.Sequence[str], by_policy: t.Callable[[str, Deadline, bool], Report] = node_sweep.sweep_by_policy
) -> int:
    """Sweep, and tell what came of it.

    Args:
        argv: the arguments.
        by_policy: sweeps a node (`node_sweep.sweep_by_policy`).

    Returns:
        The exit status.
    """
    call = _parser().parse_args(argv)
    deadline = Deadline.after(DEADLINE_S)
    event_log.configure(program=PROGRAM, component="sweep", job="")
    try:
        here = host_name()
        report = node_sweep.sweep_at_boot(here, deadline) if call.boot else by_policy(here, deadline, call.all)
    except VTorqueError as error:
        event_log.report(str(error), event_log.ERROR)
        print(messages.text(PROGRAM, error), file=sys.stderr)
        return LEFT
    _log(report)
    if call.json:
        print_json(call, dataclasses.asdict(report))
    else:
        _print_report(report, always=sys.stdout.isatty())
    return 0 if report.ok else LEFT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Take from this node what belongs to no living start of a job, and take back the note with which "
        "vTorque set\nthis node offline, when the cause that it names tests good.  Read the sources of the node's "
        "health\n(health_sources).",
    )
    parser.add_argument("--boot", action="store_true", help="only what is of an earlier boot; nobody is asked")
    parser.add_argument("--all", action="store_true", help=f"also more than {sweep.MASS} starts at once")
    add_json(parser)
    return parser


def _deeds(report: Report) -> t.Iterator[str]:
    """What was done."""
    for item in report.removed:
        yield _line("removed", item.key, f"{', '.join(item.things) or 'nothing was there any more'} ({item.why})")
    if report.retired:
        listed = ", ".join(report.retired[:MANY]) + (" ..." if len(report.retired) > MANY else "")
        yield _line("retired", "", f"{len(report.retired)} old records: {listed}")
    for outcome in report.handed_over:
        if outcome.is_delivered:
            yield _line("record", outcome.key, outcome.message)
    if report.health.note:
        yield _line("health", report.node, f"set offline: {report.health.note}")
    for key in report.health.ordered:
        yield _line("health", key, f"{report.health.order} is ordered: {report.node} is degrading")
    if report.note.taken_back:
        yield _line("note", report.node, f"taken back: {report.note.note} ({report.note.why})")


def _wants(report: Report) -> t.Iterator[str]:
    """What is not well."""
    for item in report.left:
        yield _line("left", item.key, item.why)
    for outcome in report.handed_over:
        if not outcome.is_delivered:
            yield _line("record", outcome.key, outcome.message)
    for key in report.lost:
        yield _line("lost", key, "this record is too old to be kept, and the front end never got it")
    if report.health.degrading:
        yield _line("health", report.node, f"degrading: {report.health.degrading}")
    if report.note.note and not report.note.taken_back:
        yield _line("note", report.node, f"stays: {report.note.note} ({report.note.why})")


def _line(kind: str, key: str, text: str) -> str:
    # names of jobs, files and processes: whoever gave them, a terminal of root's shows them
    return printable(f"{kind:<8} {key}: {text}" if key else f"{kind:<8} {text}")


def _print_report(report: Report, *, always: bool) -> None:
    lines = [*_deeds(report), *_wants(report)]
    if always:
        lines += [_line("living", item.key, item.why) for item in report.living]
        lines = lines or [f"nothing of a job is on {report.node}"]
    for line in lines:
        print(line)


def _log(report: Report) -> None:
    for line in _deeds(report):
        event_log.report(line)
    for line in _wants(report):
        event_log.report(line, event_log.WARNING)
    for item in report.living:
        event_log.report(_line("living", item.key, item.why), event_log.DEBUG)


if __name__ == "__main__":
    sys.exit(main())
