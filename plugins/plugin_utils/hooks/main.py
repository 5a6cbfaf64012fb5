# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the hooks do, once `cli/hook.py` has begun.

How this ends is never the batch system's business, but for one end: the job is to be queued again (`HookEnd.AGAIN`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import syslog
import traceback
import types
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.job.batch.hook_call import HookCall, HookEnd, Role, hook_began
from ...module_utils.job.batch.registry import launchers_system, open_hooks
from ...module_utils.job.hooks.start import Places
from ...module_utils.state import event_log
from ...module_utils.system.process import signals
from ...module_utils.text import printable
from ...module_utils.time_budget import SYSLOG_S
from ..faststart import mark
from ..faststart.early_removal import EarlyRemoval
from ..faststart.head_start import HeadStart
from ..faststart.preloaded import PreloadedRunner
from ..faststart.spawn import EarlyProgram

if t.TYPE_CHECKING:
    from ...module_utils.job.hooks.prologue import Ending

LOG = "hooks.log"


def main(argv: t.Sequence[str], places: Places | None = None, program: EarlyProgram | None = None) -> int:
    """Do what the hook's role asks.

    Args:
        argv: what the launcher hands on.
        places: where things are.
        program: this node's `vtorque-node`, where it loads already.

    Returns:
        What the batch system's launcher takes for the end of this hook (`HookAdapter.exit_status`); what failed is
        said in one line on standard error (the job's .ER) and in the log.
    """
    places = places or Places()
    _reset_process()
    event_log.configure(event_log.LogSettings(), program="hook", component="verdict", job="", job_level=event_log.INFO)
    hooks = open_hooks(launchers_system(os.environ))
    call: HookCall | None = None
    try:
        call = hooks.read_call(argv, os.environ)
        event_log.configure(job=call.job_id)
        ending = _dispatch(call, places, program)
    except (VTorqueError, OSError, subprocess.SubprocessError) as error:
        _print_error(printable(f"vtorque: this job's hook failed: {error}"))
        _log_to_site(places, " ".join(map(repr, argv[:6])), "".join(traceback.format_exception(error)), event_log.ERROR)
        return hooks.exit_status(HookEnd.UNREADABLE if call is None else HookEnd.FAILED)
    if ending is None:
        return hooks.exit_status(HookEnd.DONE)
    if ending.alarm:
        level = event_log.ERROR if ending.grave else event_log.WARNING
        _log_to_site(places, "ALARM" if ending.grave else "verdict", printable(ending.alarm), level)
        raise_alarm(ending.alarm, grave=ending.grave)
    if ending.message:  # last: the job's error file may be a pipe of its owner's, who need not read it
        _print_error("\n".join(ending.message))
    if ending.requeue:
        return hooks.exit_status(HookEnd.AGAIN)
    return hooks.exit_status(HookEnd.BRAKE if ending.brake else HookEnd.DONE)


def _dispatch(call: HookCall, places: Places, program: EarlyProgram | None = None) -> Ending | None:
    if call.role == Role.BEGIN_FIRST:
        with (
            PreloadedRunner(places.ansible, places.run_dir) as runner,
            HeadStart(program, runner, place=places.run_dir / mark.NAME, config=places.config) as head_start,
        ):
            if call.marked:
                head_start.begin()
            from ...module_utils.job.hooks import prologue  # while both load beside us

            return prologue.run(call, places, runner, began=hook_began(), head_start=head_start)
    if call.role in (Role.END_FIRST, Role.END_OTHER):
        _end(call, places)
    return None


def _end(call: HookCall, places: Places) -> None:
    """The end of a job: on the mother superior all of it, on another node what is there."""
    with (
        PreloadedRunner(places.ansible, places.run_dir) as runner,
        EarlyRemoval(places.node, runner, place=places.run_dir / mark.NAME, config=places.config) as early,
    ):
        if call.role == Role.END_FIRST and call.marked:
            early.begin()
        from ...module_utils.job.hooks import epilogue  # which a prologue does without, and while both load beside us

        if call.role == Role.END_OTHER:
            epilogue.run_sister(call, places, began=hook_began())
            return
        from ..bridge.upkeep import leftover_processes  # as above: this epilogue's alone

        try:
            end_leftovers = leftover_processes.end_leftovers
            epilogue.run(call, places, runner, began=hook_began(), early=early, end_leftovers=end_leftovers)
        finally:
            from . import start_sweep  # 3 ms that a prologue does not pay

            start_sweep.sweep_if_needed(places.run_dir, places.state_dir)


def _print_error(text: str) -> None:
    """On standard error, the job's .ER; that nobody takes it (a full disk, a terminal that is gone) changes nothing."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))


def raise_alarm(text: str, *, grave: bool) -> None:
    """Tell the administrator by the system log; one that does not take it holds nobody up.

    Args:
        text: what happened.
        grave: somebody should see to it now.
    """

    def late(_signal: int, _frame: types.FrameType | None) -> t.NoReturn:
        raise TimeoutError

    former = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SYSLOG_S)
    try:
        syslog.openlog("vtorque", syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_CRIT if grave else syslog.LOG_WARNING, printable(text)[:1000])
    except OSError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def _reset_process() -> None:
    """Undo what a hook inherits: blocked and ignored signals, the umask (recorded on TORQUE 6.1.3)."""
    signals.reset_signals()
    signals.unblock_signals()
    os.umask(0o022)


def log_notice(argv: t.Sequence[str], text: str) -> None:
    """A word for the administrator about a hook that goes on all the same.

    Args:
        argv: what the launcher handed on.
        text: what happened.
    """
    _log_to_site(Places(), " ".join(map(repr, argv[:6])), text, event_log.WARNING)


def _log_to_site(places: Places, call: str, text: str, level: str) -> None:
    """Add to the log of what belongs to no job; when even that fails, standard error had it."""
    with contextlib.suppress(OSError, VTorqueError):
        event_log.add(places.state_dir / "log" / LOG, f"{call}\n{text}", level, "verdict")


def report_unexpected(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """A fault of ours: the user reads one line, the administrator the rest."""
    os.write(2, f"vtorque: a fault in vTorque itself: {kind.__name__}: tell the administrator\n".encode())
    with contextlib.suppress(Exception):  # else Python would tell the user of this one, too, and of all that led to it
        text = "".join(traceback.format_exception(kind, error, trace))
        _log_to_site(Places(), " ".join(map(repr, sys.argv[1:6])), text, event_log.ERROR)
