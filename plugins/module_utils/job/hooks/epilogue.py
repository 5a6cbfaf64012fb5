# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`epilogue` and `epilogue.parallel`: nothing of the job is left on the node."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import time
import typing as t

from ... import installed
from ...errors import VTorqueError
from ...state import delivery_queue, event_log, layout, login_fifos, shell_link
from ...system import clock, files
from ...system.process.detached import start_detached
from ...text import printable
from ...time_budget import EPILOGUE_REMOVAL_S, HOOK_END_S, SISTER_REMOVAL_S
from ...wire import form
from ...wire.messages import NodePart
from ...wire.node_answers import GuestConsole, GuestUse
from ...wire.node_command import END_LEFTOVERS
from ..batch import hook_call, job_snapshot
from ..batch.hook_call import HookCall
from ..batch.registry import launchers_system, open_hooks
from ..batch.vm_job import vm_job_of
from ..config import policy_file
from ..config.consistency import log_settings_of
from ..config.parameters import Policy
from ..records import writer
from ..records.moves import MOVES, collect_moves
from ..records.samples import series_file
from ..records.transfer import delivery, transfer_format
from ..request.value_types import encode_value
from . import playbook, user_script
from .ansible_process import PlaybookRunner
from .live_log import log_wishes
from .start import Places, Start

COPIED = {
    "refusal": layout.REFUSAL,
    "verdict": layout.VERDICT,
    "lost": layout.LOST,
    **{key: f"{key}.json" for key in (user_script.PROLOGUE, user_script.EPILOGUE)},
}
"""Records of the run directory that the job's record keeps, each under its own name."""
LEFTOVER_LENGTH = 2000


EndLeftovers = t.Callable[[HookCall, Start, Policy, float, t.IO[bytes]], None]
"""Ends what the job left on this node itself (`plugin_utils/bridge/upkeep/leftover_processes.py`)."""


class EarlyEnd(t.Protocol):
    """May begin what the playbook will ask of this node (`plugin_utils/faststart/early_removal.py`)."""

    def go(self, part: NodePart, *, directory: pathlib.Path, until: float) -> None:
        """Ask this node to remove its guests, beside us."""

    def end(self) -> None:
        """End what has begun."""


class _Newest(t.NamedTuple):
    """What only the newest start of a job gets; an older one has no more than what it left on this node."""

    runner: PlaybookRunner
    early: EarlyEnd
    end_leftovers: EndLeftovers | None


def run(
    call: HookCall,
    places: Places,
    runner: PlaybookRunner,
    *,
    began: float,
    early: EarlyEnd,
    end_leftovers: EndLeftovers | None = None,
) -> None:
    """Remove what there is of the job on all its nodes, and close its record.

    Nothing to remove is no fault: the prologue may have never run, or refused the job.

    Args:
        runner: runs the playbook.
        began: when the batch system started the hook, in seconds of the monotonic clock.
        early: may begin what the playbook will ask of this node.
        end_leftovers: ends what the job left on this node itself, when its guests are gone.

    Raises:
        VTorqueError: something of the job is left; everything was tried.
    """
    numbers = {*layout.starts_of(call.job_id, places.run_dir / "jobs")}
    numbers |= {*layout.starts_of(call.job_id, places.state_dir / "guests")}
    numbers = _over(call, numbers)
    if not numbers:
        return
    # whatever is wrong with the configuration, the job is cleaned up
    policy, broken = policy_file.load_usable(lambda: policy_file.load(places.config))
    event_log.configure(log_settings_of(policy), component="epilogue")
    if broken is not None:  # of what the site wants, nothing that hurts is guessed
        end_leftovers = None
    if not policy.fast_start:
        early.end()
    ends = open_hooks(policy.batch_system).hook_ends(call, policy, began)
    until = hook_call.deadline(ends, began=began, at_most_s=float("inf"))
    left: VTorqueError | None = None
    with _handed_over(call, numbers, places, policy):
        for number in sorted(numbers, reverse=True):
            start = Start(call.job_id, number, places)
            newest = _Newest(runner, early, end_leftovers) if number == max(numbers) else None
            left = _end(call, start, policy, began, until, newest) or left
    if left is not None:
        raise left


def _over(call: HookCall, numbers: set[int]) -> set[int]:
    """Return which of a job's starts are over, by a call that may name its own: a later one may have begun here."""
    return {number for number in numbers if call.start is None or number <= call.start}


@contextlib.contextmanager
def _handed_over(call: HookCall, numbers: set[int], places: Places, policy: Policy) -> t.Iterator[None]:
    """Let the front end have the records that are whole at the end; nobody waits until they are there.

    The newest is announced at once: when the hook has ended, the batch server may forget the job.  All are marked
    before that: whatever becomes of this hook, the sweep hands over what is still marked then.
    """
    process: subprocess.Popen[bytes] | None = None
    if delivery.front_end(policy) is not None:
        for number in numbers:
            with contextlib.suppress(VTorqueError):  # a full disk; the record may still be taken now
                delivery_queue.mark_pending(layout.job_key(call.job_id, number), places.state_dir)
        number = max(numbers)
        with Start(call.job_id, number, places).open_any_log(call.uid) as log, contextlib.suppress(OSError):
            process = start_detached(
                [*places.record, "--send", call.job_id, str(number)], stdin=subprocess.PIPE, stdout=log, stderr=log
            )
    try:
        yield
    finally:
        if process is not None and process.stdin is not None:
            process.stdin.close()


def _end(
    call: HookCall,
    start: Start,
    policy: Policy,
    began: float,
    until: float,
    newest: _Newest | None,
) -> VTorqueError | None:
    level = _log_level(start, policy)
    event_log.configure(job_level=level)
    with start.open_any_log(call.uid) as log:
        left = _end_ssh(start)  # the job is over, and nobody else ends it while its guest's address is silent
        playbook.note(
            log, f"the end of start {start.number} begins, {until - time.monotonic():.0f} s are left", event_log.DEBUG
        )
        made = (start.directory / layout.PLAN).exists() or start.guests_directory.exists()
        if made:
            node = call.mother_superior or os.uname().nodename
            failed = None
            if newest is not None:
                _run_users(start, policy, until, log)
                _begin_removal(start, node, until, newest.early)
                failed = _run_playbook(start, policy, until, log, newest.runner, detail=level != event_log.INFO)
            if newest is None or failed is not None or start.guests_directory.exists():
                failed = playbook.remove_here(start, node, timeout_s=playbook.removal_time_s(until), log=log)
            left = left or failed
        if left is not None:
            playbook.note(log, f"left behind: {left}", event_log.ERROR)
        if newest is not None and newest.end_leftovers is not None:
            try:
                newest.end_leftovers(call, start, policy, until, log)
            except (VTorqueError, OSError) as error:
                playbook.note(log, f"processes of the job may be left on this node: {error}", event_log.WARNING)
        try:
            _close_record(call, start, began, left, log)
        except VTorqueError as error:
            left = left or error
        if (host := delivery.front_end(policy)) is not None and (
            more := transfer_format.staying(start.record_directory)
        ):
            playbook.note(log, f"consoles that are too many for {host} and stay in {start.record_directory}: {more}")
        _tidy_record(start, log)
    try:
        shell_link.remove_run(start.directory, start.places.run_dir)
    except VTorqueError as error:
        left = left or error
    return left


def _log_level(start: Start, policy: Policy) -> str:
    with contextlib.suppress(OSError, VTorqueError):
        return log_wishes(job_snapshot.read_snapshot(start.job_id, start.directory), policy)[1]
    return event_log.INFO


def _end_ssh(start: Start) -> VTorqueError | None:
    """The ssh that the prologue began for the job's shell: it would wait for a guest that is gone."""
    try:
        login_fifos.end(start.directory)
    except (VTorqueError, OSError) as error:
        return error if isinstance(error, VTorqueError) else VTorqueError("the job's ssh was not ended", str(error))
    return None


def _run_users(start: Start, policy: Policy, until: float, log: t.IO[bytes]) -> None:
    """The user's own epilogue, in the guest, where that was ready and is not lost; it keeps nothing from its end."""
    if not (start.directory / layout.READY).exists() or (start.directory / layout.LOST).exists():
        return
    if (start.directory / layout.PARKED).exists():  # its guests are on the disk, and go on in a later start
        return
    try:
        job = job_snapshot.read_snapshot(start.job_id, start.directory)
        script = user_script.requested_script(job, user_script.EPILOGUE)
    except VTorqueError as error:
        playbook.note(log, f"{user_script.EPILOGUE}: {error}", event_log.WARNING)
        return
    if job is not None and script is not None:
        timeout_s = max(0.0, min(policy.vm_epilogue_timeout, until - EPILOGUE_REMOVAL_S - time.monotonic()))
        user_script.run(script, job, start, policy, timeout_s=timeout_s, log=log)


def _begin_removal(start: Start, node: str, until: float, early: EarlyEnd) -> None:
    """Have this node asked for what the playbook will ask of it; what fails here fails there again."""
    with contextlib.suppress(OSError, VTorqueError):
        (start.directory / layout.ASKED).unlink(missing_ok=True)
        # a host that stays bare need not have libvirt, and what knows that is the plan
        if start.guests_directory.exists():
            part = NodePart.removal(start.job_id, start.number, node, 0.0)
            early.go(part, directory=start.directory, until=until)


def _run_playbook(
    start: Start, policy: Policy, until: float, log: t.IO[bytes], runner: PlaybookRunner, *, detail: bool
) -> VTorqueError | None:
    if not (start.directory / layout.INVENTORY).exists():
        return VTorqueError("the epilogue was not played", "the prologue left no inventory")
    for path in start.directory.glob("error*.json"):  # of the prologue
        path.unlink()
    plain = not policy.fast_start
    return playbook.run_playbook(start, "epilogue", until=until, log=log, runner=runner, plain=plain, detail=detail)


def _close_record(call: HookCall, start: Start, began: float, left: VTorqueError | None, log: t.IO[bytes]) -> None:
    """Add to the job's record how it ended; a record that cannot be read is begun anew."""
    known: dict[str, t.Any] = {"user": call.user}
    with contextlib.suppress(VTorqueError):
        known.update(writer.read_former(start.record_directory))
    for name, file in COPIED.items():
        with contextlib.suppress(FileNotFoundError, VTorqueError):
            known[name] = files.read_json(start.directory / file)
    _add_job(known, start)
    _add_use(known, start)
    _add_series(known, start, call.uid)
    if moves := collect_moves(start.record_directory, start.directory):
        known[MOVES] = moves
    _add_consoles(start, call.uid)
    phases = known.setdefault("phases", {})
    with contextlib.suppress(FileNotFoundError, VTorqueError):
        phases["prologue"] = files.read_json(start.directory / layout.StepFile.PHASE.of("prologue"))
    phases["epilogue"] = {"began": round(clock.since_epoch(began), 3), "seconds": round(time.monotonic() - began, 3)}
    known["left"] = [str(left)[:LEFTOVER_LENGTH]] if left is not None else []
    with contextlib.suppress(VTorqueError):
        known["vtorque"] = installed.version()
    if call.exit_status is not None:  # a start that its hook ended has none
        known["exit_status"] = call.exit_status
    known["ended"] = known.get("ended") or round(time.time(), 3)
    wrong = writer.write(start.record_directory, call.job_id, start.number, known, reader_uid=call.uid)
    if wrong:
        playbook.note(log, wrong, event_log.WARNING)


def _tidy_record(start: Start, log: t.IO[bytes]) -> None:
    """A prologue that failed has ended whoever still noted something; the sweep looks for what would not go."""
    try:
        for name in files.remove_halves(start.record_directory):
            playbook.note(log, f"half a file removed: {name}")
    except OSError as error:
        playbook.note(log, f"half a file may be left: {error}", event_log.WARNING)


def _add_job(known: dict[str, t.Any], start: Start) -> None:
    """The job's name and request, as the server told them to the prologue."""
    with contextlib.suppress(OSError, VTorqueError):
        if job := job_snapshot.read_snapshot(start.job_id, start.directory):
            known["name"] = job.name
            known.update({"alias": job.alias} if job.alias else {})
            if vm_job := vm_job_of(job):
                known["request"] = {key: encode_value(value) for key, value in sorted(vm_job.request.values.items())}


def _add_use(known: dict[str, t.Any], start: Start) -> None:
    """To each guest of the record what it used: as the nodes answered, or as it was written down on this one."""
    used: dict[str, dict[str, float]] = {}
    for path in (start.record_directory / layout.USED, *sorted(start.directory.glob(layout.StepFile.USED.pattern))):
        with contextlib.suppress(FileNotFoundError, VTorqueError):
            found = [form.from_dict(GuestUse, one) for one in files.read_json(path).get("used", ())]
            used |= {one.name: one.known() for one in found}
    for guest in known.get("guests", ()):
        if guest.get("name") in used:
            guest["used"] = used[guest["name"]]


def _add_series(known: dict[str, t.Any], start: Start, uid: int | None) -> None:
    """Beside the record what its nodes measured, and in it the energy."""
    with contextlib.suppress(OSError, VTorqueError):
        nodes = series_file.write_series(start.directory, start.record_directory, uid)
        if energy := series_file.energy_of(nodes):
            known["energy"] = energy


def _add_consoles(start: Start, uid: int | None) -> None:
    """Beside the record the ends of other nodes' consoles; those of this one are there, and longer."""
    for console_file in sorted(start.directory.glob(layout.StepFile.CONSOLES.pattern)):
        with contextlib.suppress(OSError, VTorqueError):
            for one in files.read_json(console_file).get("consoles", ()):
                console = form.from_dict(GuestConsole, one)
                path = start.record_directory / f"{console.name}{layout.CONSOLE_END}"
                if not path.exists():
                    lines = "\n".join(map(printable, console.end.splitlines()))
                    files.write(path, f"{lines}\n", reader_uid=uid)


def run_sister(call: HookCall, places: Places, *, began: float) -> None:
    """Begin to remove what is on this node, at once: Torque ends the sisters while the job may still run.

    The removal goes on by itself, in a session of its own: a sister's MOM is blocked meanwhile, and takes the node
    down when its hook is late. Where the node's next job waits for this hook, its end is waited for.

    Args:
        began: when the batch system started the hook, in seconds of the monotonic clock.

    Raises:
        VTorqueError: it was not begun for some start, or not over in time.
    """
    failed: VTorqueError | None = None
    removals: list[subprocess.Popen[bytes]] = []
    event_log.configure(component="epilogue")
    numbers = {*layout.starts_of(call.job_id, places.state_dir / "guests")}
    numbers |= {*layout.starts_of(call.job_id, places.run_dir / "locks")}  # begun, and nothing made yet
    for number in sorted(_over(call, numbers)):
        start = Start(call.job_id, number, places)
        try:
            with start.open_any_log(None) as log:
                playbook.note(log, f"epilogue.parallel of job {call.job_id}, start {number}")
                removals.append(_remove_detached(start, log, call.user))
        except OSError as error:
            failed = VTorqueError(f"the removal of job {call.job_id} was not begun", str(error))
    hooks = open_hooks(launchers_system(os.environ))
    if removals and hooks.END_HOLDS_NODE:
        policy, _broken = policy_file.load_usable(lambda: policy_file.load(places.config))
        ends = hooks.hook_ends(call, policy, began)
        until = hook_call.deadline(ends, began=began, at_most_s=float("inf"), reserve_s=HOOK_END_S)
        try:
            for removal in removals:
                removal.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            why = "it goes on, and the next job may begin here meanwhile"
            failed = failed or VTorqueError(f"the removal of job {call.job_id} takes longer than its hook may", why)
    if failed is not None:
        raise failed


def _remove_detached(start: Start, log: t.IO[bytes], user: str) -> subprocess.Popen[bytes]:
    part = NodePart.removal(start.job_id, start.number, os.uname().nodename, SISTER_REMOVAL_S)
    # in memory: anybody may fill /tmp
    with os.fdopen(os.memfd_create("vtorque-node"), "w+b") as stdin:
        stdin.write(json.dumps(form.to_dict(part)).encode())
        stdin.seek(0)
        command = [*start.places.node, END_LEFTOVERS, user, start.job_id, str(start.number)]
        return start_detached(command, stdin=stdin, stdout=log, stderr=log)
