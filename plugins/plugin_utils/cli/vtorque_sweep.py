# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque-sweep: take from this node what belongs to no living start, take back our note, hand over what waits."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import sys
import syslog
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.job.batch import liveness as living
from ...module_utils.job.batch import offline_note
from ...module_utils.job.batch.api import BatchSystem
from ...module_utils.job.batch.registry import open_batch
from ...module_utils.job.batch.torque.mom_files import by_files
from ...module_utils.job.config import parameters, policy_file
from ...module_utils.job.records import delivery, retention
from ...module_utils.node import doctor, sweep
from ...module_utils.node.health import causes
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.state import delivery_queue, layout
from ...module_utils.system.clock import Deadline
from ...module_utils.text import printable
from ..bridge.node_settings import host_name, settings_of
from .output import messages
from .output.json_output import add_json, tell

PROGRAM = "vtorque-sweep"
VERSION = 1
DEADLINE_S = 300.0
LAST_S = 30
"""Seconds after the deadline at which the kernel ends us, wherever we hang."""
CALL_S = 10.0
"""Seconds for each question to the batch server."""
LEFT = 1
MANY = 8

EPILOG = f"""\
What is taken away: virtual machines, their directories, slots and processes, and run directories, of starts of jobs
that are over.  A start stays when somebody is making its machines, its job's shell lives, or the MOM on this node has
files of its job.  Of the others the batch server is asked, and only what it calls over at two looks that are
{sweep.TWICE_S:.0f} s apart goes: call it again after a minute.  What is of an earlier boot of the node goes at once.

Records of jobs that the front end has not got yet are handed over, the oldest first, until it turns out to be away.
That they wait changes no exit status: vmgr doctor tells of it.

exit status:
  0  all is well now
  1  something is left, is not known, or is too much at once; it is said what, and why
  2  the command line is wrong

examples:
  vtorque-sweep            what the timer does every two minutes
  vtorque-sweep --boot     at boot, before the MOM starts
  vtorque-sweep --all      more than {sweep.MASS} starts at once, after you have looked at them
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What one call did and found; `--json` shows it as it is."""

    version: int
    node: str
    ok: bool
    removed: tuple[sweep.Said, ...]
    left: tuple[sweep.Said, ...]
    living: tuple[sweep.Said, ...]
    note: offline_note.NoteWord
    retired: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    handed_over: tuple[delivery.Told, ...] = ()


def main() -> int:
    """The program; returns its exit status."""
    # sshd and MOM give root their own; what is made here must be passable
    os.umask(0o022)
    signal.alarm(int(DEADLINE_S) + LAST_S)
    syslog.openlog(PROGRAM, 0, syslog.LOG_DAEMON)
    return messages.run(PROGRAM, lambda: run(sys.argv[1:]))


def run(words: t.Sequence[str], load: t.Callable[[], parameters.Policy] = policy_file.load) -> int:
    """Sweep, and tell what came of it.

    Args:
        words: the arguments.
        load: gives the site's policy.

    Returns:
        The exit status.
    """
    call = _parser().parse_args(words)
    deadline = Deadline.after(DEADLINE_S)
    try:
        report = boot(host_name(), deadline) if call.boot else by_policy(host_name(), load, deadline, call.all)
    except VTorqueError as error:
        syslog.syslog(syslog.LOG_WARNING, str(error))
        print(messages.text(PROGRAM, error), file=sys.stderr)
        return LEFT
    _log(report)
    if call.json:
        tell(call, dataclasses.asdict(report))
    else:
        _show(report, always=sys.stdout.isatty())
    return 0 if report.ok else LEFT


def boot(node: str, deadline: Deadline) -> Report:
    """What is of an earlier boot.  A broken configuration must not keep a node from coming up clean: none is read."""
    settings = NodeSettings(node_name=node, node_number=None)
    swept = sweep.sweep_earlier_boot(settings, deadline)
    _mark_removed(settings, swept)
    return _report(node, swept, offline_note.NoteWord())


def by_policy(node: str, load: t.Callable[[], parameters.Policy], deadline: Deadline, any_number: bool) -> Report:
    """What belongs to no living start; the rest of our work only where all of the site's configuration can be read.

    A broken one keeps nothing that is nobody's: what can be read of it, and the defaults, say where to look, and where
    that is wrong the MOM's files and the server are not found, so that nothing goes.  Whether a node's trouble is over,
    and how long records are kept, are the site's wishes: they wait until it can be read.

    Args:
        node: this node.
        load: gives the site's policy.
        deadline: when to end.
        any_number: see `everything`.

    Raises:
        VTorqueError: see `sweep.sweep`.
    """
    policy, broken = policy_file.load_usable(load)
    if broken is None:
        return everything(node, policy, deadline, any_number)
    swept = _swept(policy, node, open_batch(policy, timeout_s=CALL_S), deadline, any_number)
    words = f"{broken.what}: {broken.why}; until it is mended no record is retired, and no note taken back"
    return _report(node, _with(swept, words), offline_note.NoteWord())


def everything(node: str, policy: parameters.Policy, deadline: Deadline, any_number: bool) -> Report:
    """What belongs to no living start, and our note.

    Args:
        node: this node.
        policy: the site's.
        deadline: when to end.
        any_number: take away more than `sweep.MASS` starts at once, too.

    Raises:
        VTorqueError: see `sweep.sweep`.
    """
    settings = settings_of(policy, node)
    batch = open_batch(policy, timeout_s=CALL_S)
    swept = _swept(policy, node, batch, deadline, any_number)
    try:
        note = offline_note.take_back(batch, node, lambda cause: causes.troubles(settings, cause))
    except VTorqueError as error:
        swept = _with(swept, f"whether this node carries a note of ours is not known: {error}")
        note = offline_note.NoteWord()
    told: tuple[delivery.Told, ...] = ()
    try:
        told = delivery.send_waiting(policy, deadline, state_dir=settings.state_dir, run_dir=settings.run_dir)
    except OSError as error:
        swept = _with(swept, f"the records that wait for the front end cannot be read: {error}")
    old = retention.retire(policy.record_days, state_dir=settings.state_dir, run_dir=settings.run_dir)
    report = _report(node, _with(swept, *old.failed), note, old.removed)
    return dataclasses.replace(report, lost=old.lost, handed_over=told)


def _swept(
    policy: parameters.Policy, node: str, batch: BatchSystem, deadline: Deadline, any_number: bool
) -> sweep.Swept:
    settings = settings_of(policy, node)
    swept = sweep.sweep(
        settings, living.by_server(batch, node), by_files(settings.torque_home), deadline, any_number=any_number
    )
    doctor.note_sweep(settings, [f"{said.key}: {said.why}" if said.key else said.why for said in swept.left])
    retention.bound_logs(settings.state_dir)
    _mark_removed(settings, swept)
    return swept


def _mark_removed(settings: NodeSettings, swept: sweep.Swept) -> None:
    """The record of a start whose epilogue was lost is handed over too, as far as it goes."""
    for said in swept.removed:
        if layout.start_of(said.key) and (settings.state_dir / "records" / said.key / layout.RECORD).exists():
            with contextlib.suppress(VTorqueError):
                delivery_queue.leave(said.key, settings.state_dir)


def _with(swept: sweep.Swept, *troubles: str) -> sweep.Swept:
    """What was swept, with words that belong to no start."""
    return dataclasses.replace(swept, left=(*swept.left, *(sweep.Said("", trouble) for trouble in troubles)))


def _report(node: str, swept: sweep.Swept, note: offline_note.NoteWord, retired: tuple[str, ...] = ()) -> Report:
    ok = not swept.left and (not note.note or note.taken_back)
    return Report(VERSION, node, ok, swept.removed, swept.left, swept.living, note, retired)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Take from this node what belongs to no living start of a job, and take back the note with which "
        "vTorque set\nthis node offline, when the cause that it names tests good.",
    )  # fmt: skip
    parser.add_argument("--boot", action="store_true", help="only what is of an earlier boot; nobody is asked")
    parser.add_argument("--all", action="store_true", help=f"also more than {sweep.MASS} starts at once")
    add_json(parser)
    return parser


def _deeds(report: Report) -> t.Iterator[str]:
    """What was done."""
    for said in report.removed:
        yield _line("removed", said.key, f"{', '.join(said.things) or 'nothing was there any more'} ({said.why})")
    if report.retired:
        shown = ", ".join(report.retired[:MANY]) + (" ..." if len(report.retired) > MANY else "")
        yield _line("retired", "", f"{len(report.retired)} old records: {shown}")
    for told in report.handed_over:
        if told.outcome == delivery.TAKEN:
            yield _line("record", told.key, told.words)
    if report.note.taken_back:
        yield _line("note", report.node, f"taken back: {report.note.note} ({report.note.why})")


def _wants(report: Report) -> t.Iterator[str]:
    """What is not well."""
    for said in report.left:
        yield _line("left", said.key, said.why)
    for told in report.handed_over:
        if told.outcome != delivery.TAKEN:
            yield _line("record", told.key, told.words)
    for key in report.lost:
        yield _line("lost", key, "this record is too old to be kept, and the front end never got it")
    if report.note.note and not report.note.taken_back:
        yield _line("note", report.node, f"stays: {report.note.note} ({report.note.why})")


def _line(kind: str, key: str, text: str) -> str:
    # names of jobs, files and processes: whoever gave them, a terminal of root's shows them
    return printable(f"{kind:<8} {key}: {text}" if key else f"{kind:<8} {text}")


def _show(report: Report, *, always: bool) -> None:
    lines = [*_deeds(report), *_wants(report)]
    if always:
        lines += [_line("living", said.key, said.why) for said in report.living]
        lines = lines or [f"nothing of a job is on {report.node}"]
    for line in lines:
        print(line)


def _log(report: Report) -> None:
    for line in _deeds(report):
        syslog.syslog(syslog.LOG_NOTICE, line)
    for line in _wants(report):
        syslog.syslog(syslog.LOG_WARNING, line)


if __name__ == "__main__":
    sys.exit(main())
