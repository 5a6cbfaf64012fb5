# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on this node and belongs to no living start, and its removal.

The caller hands in whether the batch system reports that a start lives.  One report is not enough: a server that was
restored knows no job at all.  What is being created, what has a job's shell, and what the MOM has files of stays; the
rest must be found over twice.  A worker that watches guests (it shares the lock) protects nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import pathlib
import shutil
import typing as t

from ..errors import NodeFault, VTorqueError
from ..state import layout, shell_link
from ..state.layout import start_of
from ..system import files
from ..system.clock import Deadline
from ..system.process import process_id
from .devices import host_devices
from .domain.connection import Domains
from .io_cores import interrupts
from .lifecycle import present_absent
from .network import private, vlans
from .placement import hugepages
from .removal import run_files
from .removal.leftovers import Leftover, list_leftovers, list_leftovers_without_libvirt
from .removal.remove import save_console
from .removal.suspects import Suspects
from .state import guest_file, slots, start_lock
from .state.directories import entries
from .state.guest_file import read_guest_file
from .state.settings import NodeSettings
from .warm import tidying

TWICE_S = 60.0
"""Seconds between the two looks that both find a start over."""
MASS = 4
"""So many starts at once are taken away unasked; more look as if it were not the starts that are wrong."""
WAIT_S = 30.0
"""Seconds for another sweep to end."""
REMOVAL_S = 60.0
"""Seconds for what is left of one start."""
OF_THE_FILE_SYSTEM = "lost+found"

IsAlive = t.Callable[[str, int], bool]
"""Return whether this start of this job lives; VTorqueError when that is not known: unknown is never "no"."""
HasFiles = t.Callable[[str], bool]
"""Return whether the MOM on this node has files of this job; VTorqueError when that is not known."""


class Standing(enum.StrEnum):
    """How a start stands of which something is here."""

    LIVING = "living"
    LEFT = "left"
    """It is over, or it may be; it is not to be taken away now."""
    OVER = "over"
    EARLIER = "earlier"
    """It is of an earlier boot of this node."""


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """One start of a job of which something is here."""

    key: str
    job_id: str
    number: int
    leftovers: tuple[Leftover, ...]
    has_run_directory: bool

    @property
    def contents(self) -> str:
        """What is here of it."""
        run = [f"run directory {self.key}"] if self.has_run_directory else []
        return ", ".join([*map(str, self.leftovers), *run])


@dataclasses.dataclass(frozen=True, slots=True)
class StartReport:
    """What is said of one start.

    Attributes:
        key: `state.layout.job_key` of it; "" for what belongs to none.
        why: in words.
        things: what was removed.
    """

    key: str
    why: str
    things: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did and found.

    Attributes:
        removed: starts of which things were taken away, and "" for what belonged to no start.
        left: what is here and should not be, or is not known to be right.
        living: what belongs to a living start.
    """

    removed: tuple[StartReport, ...] = ()
    left: tuple[StartReport, ...] = ()
    living: tuple[StartReport, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Inspection:
    starts: tuple[Start, ...]
    strangers: tuple[Leftover, ...]
    silent: NodeFault | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Judgement:
    start: Start
    standing: Standing
    why: str


def sweep(
    settings: NodeSettings,
    is_alive: IsAlive,
    has_files: HasFiles,
    deadline: Deadline,
    *,
    twice_s: float = TWICE_S,
    mass: int = MASS,
    any_number: bool = False,
) -> SweepReport:
    """Remove what belongs to no living start.

    Args:
        is_alive: the batch server's word on a start.
        has_files: the MOM's word on a job.
        deadline: when to end; what was not looked at by then stays.
        twice_s: seconds between two looks.
        mass: so many starts at once, and no more.
        any_number: more than that, too.

    Raises:
        VTorqueError: another sweep is at work, or nothing can be kept for the next look.
    """
    with _alone(settings, deadline):
        suspects = Suspects(settings.run_dir / "suspects.json")
        seen = _inspect(settings)
        judged = [_judge(start, settings, is_alive, has_files, suspects, twice_s, deadline) for start in seen.starts]
        due = [one for one in judged if one.standing is Standing.OVER]
        if len(due) > mass and not any_number:
            why = f"{len(due)} starts at once are found over, more than {mass}: is the batch server's word true?"
            judged = [_Judgement(one.start, Standing.LEFT, why) if one in due else one for one in judged]
        going = [one for one in judged if one.standing in (Standing.EARLIER, Standing.OVER)]
        removed, failed = _take_away(going, settings, seen.silent, deadline)
        things = (*run_files.tidy(settings), *_templates(settings), *vlans.tidy(settings))
        removed += [StartReport("", "it spoke of nothing any more", things)] if things else []
        # whatever showed life in between, the two looks begin anew
        for key in [one.start.key for one in judged if one.standing is Standing.LIVING] + [
            item.key for item in removed
        ]:
            suspects.clear(key)
        suspects.forget_others({start.key for start in seen.starts})
        suspects.write()
    left = [StartReport(one.start.key, one.why) for one in judged if one.standing is Standing.LEFT]
    left += [StartReport("", f"{thing}: whose it is cannot be told") for thing in seen.strangers]
    if seen.silent:
        left.append(StartReport("", f"what libvirt has is not known: {seen.silent}"))
    living = [StartReport(one.start.key, one.why) for one in judged if one.standing is Standing.LIVING]
    return SweepReport(tuple(removed), (*left, *failed), tuple(living))


def inspect_starts(
    settings: NodeSettings, is_alive: IsAlive, has_files: HasFiles, deadline: Deadline
) -> tuple[StartReport, ...]:
    """What is here and belongs to no living start, or is not known to; nothing is changed.

    Args:
        is_alive: the batch server's word on a start.
        has_files: the MOM's word on a job.
        deadline: when to end.
    """
    seen = _inspect(settings)
    suspects = Suspects(settings.run_dir / "suspects.json")
    judged = [_judge(start, settings, is_alive, has_files, suspects, TWICE_S, deadline) for start in seen.starts]
    found = [StartReport(one.start.key, one.start.contents) for one in judged if one.standing is not Standing.LIVING]
    return (*found, *(StartReport("", f"{thing}: whose it is cannot be told") for thing in seen.strangers))


def sweep_earlier_boot(settings: NodeSettings, deadline: Deadline) -> SweepReport:
    """Remove what is of an earlier boot, and nothing else: nobody is asked, for nobody may be there yet.

    Raises:
        VTorqueError: another sweep is at work.
    """
    with _alone(settings, deadline):
        seen = _sort(list_leftovers_without_libvirt(settings), settings)
        judged = [
            _Judgement(start, Standing.EARLIER, _EARLIER) for start in seen.starts if _of_earlier_boot(start, settings)
        ]
        removed, failed = _take_away(judged, settings, None, deadline)
    return SweepReport(tuple(removed), tuple(failed))


def _templates(settings: NodeSettings) -> tuple[str, ...]:
    """Take away of templates of warm starts what is to be; what fails is for the next sweep."""
    with contextlib.suppress(VTorqueError, OSError):
        return tidying.tidy(settings)
    return ()


@contextlib.contextmanager
def _alone(settings: NodeSettings, deadline: Deadline) -> t.Iterator[None]:
    files.make_directory(settings.run_dir)
    with start_lock.lock_alone(settings.run_dir / "locks" / "sweep", settings, Deadline.after(deadline.left_s(WAIT_S))):
        yield


def _inspect(settings: NodeSettings) -> _Inspection:
    try:
        with Domains(settings.libvirt_uri) as domains:
            there = list_leftovers(settings, domains)
    except NodeFault as fault:
        return dataclasses.replace(_sort(list_leftovers_without_libvirt(settings), settings), silent=fault)
    return _sort(there, settings)


def _sort(there: t.Iterable[Leftover], settings: NodeSettings) -> _Inspection:
    by_key: dict[str, list[Leftover]] = {}
    for thing in there:
        by_key.setdefault(thing.key, []).append(thing)
    runs = set(run_files.run_keys(settings))
    starts, strangers = [], []
    for key in sorted({*by_key, *runs}):
        things = tuple(by_key.get(key, ()))
        named = start_of(key)
        if named is not None:
            starts.append(Start(key, *named, things, key in runs))
            continue
        strangers += [thing for thing in things if thing.name != OF_THE_FILE_SYSTEM]
        strangers += [Leftover("run directory", key, key)] if key in runs else []
    return _Inspection(tuple(starts), tuple(strangers))


_EARLIER = "it is of an earlier boot of this node"


def _judge(
    start: Start,
    settings: NodeSettings,
    is_alive: IsAlive,
    has_files: HasFiles,
    suspects: Suspects,
    twice_s: float,
    deadline: Deadline,
) -> _Judgement:
    """How a start stands, and why."""
    if deadline.passed:
        return _Judgement(start, Standing.LEFT, "no time was left to look at it")
    try:
        if _of_earlier_boot(start, settings):
            return _Judgement(start, Standing.EARLIER, _EARLIER)
        if start_lock.is_locked_alone(start_lock.start_lock(settings, start.key)):
            return _describe_lock(start, settings, is_alive, has_files)
        shell = run_files.living_shell(settings, start.key)
        if shell is not None:
            return _Judgement(start, Standing.LIVING, f"its job's shell lives, process {shell.pid}")
        if has_files(start.job_id):
            return _Judgement(start, Standing.LIVING, "the batch system has something of its job here")
        if is_alive(start.job_id, start.number):
            return _Judgement(start, Standing.LIVING, "the batch server says so")
    except (VTorqueError, OSError) as error:
        return _Judgement(start, Standing.LEFT, f"whether it lives is not known: {error}")
    for_s = suspects.suspected_s(start.key)
    if for_s < twice_s:
        return _Judgement(
            start, Standing.LEFT, f"found over {for_s:.0f} s ago, believed when that holds for {twice_s:.0f} s"
        )
    return _Judgement(start, Standing.OVER, f"found over twice, {for_s:.0f} s apart")


def _describe_lock(start: Start, settings: NodeSettings, is_alive: IsAlive, has_files: HasFiles) -> _Judgement:
    """Somebody works; said aloud when there is no job any more that it could be for."""
    signer = start_lock.signer(start_lock.start_lock(settings, start.key))
    holder = f"process {signer.pid if signer else 'unknown'}"
    with contextlib.suppress(VTorqueError):
        if not has_files(start.job_id) and not is_alive(start.job_id, start.number):
            return _Judgement(
                start, Standing.LEFT, f"{holder} holds its lock, although there is no such job any more: end it"
            )
    return _Judgement(start, Standing.LIVING, f"{holder} is at work for it")


def _of_earlier_boot(start: Start, settings: NodeSettings) -> bool:
    """Return whether all that is here of it is of an earlier boot.

    What does not say of which boot it is may be of this one.
    """
    now = process_id.boot_id()
    directory = settings.start_dir(start.job_id, start.number)
    boots = [_boot(path) for guest in entries(directory) if (path := guest / guest_file.FILE).exists()]
    if start.has_run_directory:
        boots.append(_boot(settings.run_dir / "jobs" / start.key / layout.READY))
    if not boots or "" in boots or now in boots:
        return False
    # no process and no lock outlives its boot; who says so all the same is believed
    at_work = any(thing.kind in ("process", "domain") for thing in start.leftovers)
    return not at_work and not start_lock.is_locked(start_lock.start_lock(settings, start.key))


def _boot(path: pathlib.Path) -> str:
    """The boot in which this was written; "" when it does not say so."""
    try:
        return str(files.read_json(path).get("boot_id", ""))
    except (OSError, VTorqueError):
        return ""


# -- its removal


def _take_away(
    judged: t.Sequence[_Judgement], settings: NodeSettings, silent: NodeFault | None, deadline: Deadline
) -> tuple[list[StartReport], list[StartReport]]:
    """Remove these, one by one; what fails keeps nothing else from going.

    Returns:
        What was removed, and what is still here.
    """
    removed, left = [], []
    for one in judged:
        start = one.start
        try:
            if deadline.passed:
                raise VTorqueError("no time was left for it")
            if one.standing is Standing.EARLIER:
                things = _remove_earlier(start, settings, Deadline.after(deadline.left_s(REMOVAL_S)))
            else:
                if start.leftovers and silent is not None and not present_absent.is_bare(*_named(start), settings):
                    raise silent
                things = _remove_over(start, settings, Deadline.after(deadline.left_s(REMOVAL_S)))
            removed.append(StartReport(start.key, one.why, things))
        except (VTorqueError, OSError) as error:
            left.append(StartReport(start.key, f"{start.contents}: not removed: {error}"))
    return removed, left


def _remove_over(start: Start, settings: NodeSettings, deadline: Deadline) -> tuple[str, ...]:
    # a tombstone would end whoever began to work for it meanwhile
    if start_lock.is_locked_alone(start_lock.start_lock(settings, start.key)):
        raise VTorqueError("somebody has begun to work for it meanwhile")
    things: tuple[str, ...] = ()
    if start.leftovers:
        bare = present_absent.is_bare(*_named(start), settings)
        things = present_absent.absent(start.job_id, start.number, settings, deadline, bare=bare)
        if here := present_absent.describe_leftovers(settings, start.job_id, start.number, bare=bare):
            raise VTorqueError("still here", ", ".join(here))
    else:
        start_lock.bury(settings, start.key)
    return (*things, *shell_link.remove_run(settings.run_dir / "jobs" / start.key, settings.run_dir))


def _named(start: Start) -> tuple[str, int]:
    return start.job_id, start.number


def _remove_earlier(start: Start, settings: NodeSettings, deadline: Deadline) -> tuple[str, ...]:
    """Without libvirt: of a domain nothing but its files is left, and libvirt may not be up yet."""
    start_lock.bury(settings, start.key)
    lock = start_lock.start_lock(settings, start.key)
    # a mother superior who lives may be asking for the same at this moment
    with start_lock.lock_alone(lock, settings, deadline):
        things = _remove_files(start, settings)
        lock.unlink(missing_ok=True)
    return things


def _remove_files(start: Start, settings: NodeSettings) -> tuple[str, ...]:
    directory = settings.start_dir(start.job_id, start.number)
    things = []
    if directory.is_dir():
        for guest in entries(directory):
            guest_file = read_guest_file(guest)
            record = settings.record_dir(start.job_id, start.number)
            save_console(guest, record, settings, guest_file.owner_uid if guest_file else None)
        shutil.rmtree(directory)
        things.append(f"directory {start.key}")
    things += private.remove(start.key, settings)
    things += [f"device {device}" for device in host_devices.free(settings, start.key)]
    hugepages.forget(start.key, settings)
    interrupts.forget(start.key, settings)
    things += [f"slot {slot}" for slot in slots.free(settings, start.key)]
    return (*things, *shell_link.remove_run(settings.run_dir / "jobs" / start.key, settings.run_dir))
