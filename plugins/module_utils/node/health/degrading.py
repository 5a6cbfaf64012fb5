# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this node is degrading: it still works, and something reports that it will not do so for long.

A source makes a node degrading at once, and must report well at several looks before it is believed.  What cannot be
read changes nothing.  The sweep looks (`read_sources`); others read what it found.

health.json     in the state directory: what each source reported, and the counters
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import time
import typing as t

from ...errors import SiteFault, VTorqueError
from ...site_lists.health_sources import COUNTER, PROGRAM, HealthSource
from ...system import files
from ...system.clock import Deadline
from ...system.process.site_program import run_site_program
from ...text import printable
from ...wire.health_report import BAD, NONE, WARN, Finding
from ..state import start_lock
from ..state.settings import NodeSettings
from . import counters
from .counters import Counter

FILE = "health.json"
VERSION = 1
WELL_LOOKS = 3
"""Looks one after the other at which a source must report well."""
PROGRAM_S = 30.0
LOCK_S = 10.0
WHY_LENGTH = 160
_LIMIT = 1 << 24


@dataclasses.dataclass(frozen=True, slots=True)
class SourceHealth:
    """What is known of one source.

    Attributes:
        name: of the source.
        degrading: whether it makes the node degrading.
        since: since when, in seconds since the epoch; 0.0: it does not.
        why: what it reported; printable.
        well_looks: how often it has reported well since.
        unknown: why it could not be read at the last look; "": it was read.
    """

    name: str
    degrading: bool = False
    since: float = 0.0
    why: str = ""
    well_looks: int = 0
    unknown: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class NodeHealth:
    """What is known of this node.

    Attributes:
        sources: in the order of the configuration.
        counters: by the source's name and the file's path.
        ordered: starts of jobs here for which a checkpoint or a move was ordered since the node is degrading.
    """

    sources: tuple[SourceHealth, ...] = ()
    # pylint: disable=invalid-field-call  # it knows the library's own decorator alone
    counters: t.Mapping[str, t.Mapping[str, Counter]] = dataclasses.field(default_factory=dict)
    ordered: tuple[str, ...] = ()

    @property
    def degrading(self) -> tuple[SourceHealth, ...]:
        """The sources that make it so; () where it is well."""
        return tuple(one for one in self.sources if one.degrading)

    @property
    def why(self) -> str:
        """What they report, in one line; "" where it is well."""
        return "; ".join(f"{one.name}: {one.why}" for one in self.degrading)


def read_sources(
    settings: NodeSettings, read_message: t.Callable[[], str], deadline: Deadline, now: float | None = None
) -> tuple[NodeHealth, NodeHealth]:
    """Read all sources of this node, and store what they report.

    Args:
        settings: NodeSettings of this node.
        read_message: returns what the batch system's own check reports of this node; raises SiteFault.
        deadline: when to end; what is not read by then is not known.
        now: seconds since the epoch.

    Returns:
        What was known before, and what is known now.

    Raises:
        VTorqueError: it cannot be stored.
    """
    now = time.time() if now is None else now
    with _alone(settings, deadline):
        before = read_health(settings)
        known = {one.name: one for one in before.sources}
        found: list[SourceHealth] = []
        numbers: dict[str, t.Mapping[str, Counter]] = {}
        for source in settings.health_sources:
            was = known.get(source.name, SourceHealth(source.name))
            try:
                if deadline.passed:
                    raise SiteFault(source.name, "no time was left for it")
                if source.kind == COUNTER:
                    counted = _count(source, before.counters.get(source.name, {}), now)
                    numbers[source.name], why = counted, _over_limit(source, counted)
                else:
                    why = complaint_of(_output_of(source, read_message, deadline))
                found.append(judge(was, why, now))
            except VTorqueError as error:
                if source.kind == COUNTER:
                    numbers.setdefault(source.name, before.counters.get(source.name, {}))
                unknown = printable(f"{error.what}: {error.why}"[:WHY_LENGTH])
                found.append(SourceHealth(was.name, was.degrading, was.since, was.why, 0, unknown))
        after = NodeHealth(tuple(found), numbers, before.ordered)
        _write(after if after.degrading else NodeHealth(after.sources, after.counters), settings)
    return before, after


def judge(was: SourceHealth, why: str, now: float) -> SourceHealth:
    """Return what is known of a source that was read.

    Args:
        was: what was known before.
        why: what it reports against the node; "": nothing.
        now: seconds since the epoch.
    """
    if why:
        return SourceHealth(was.name, True, was.since if was.degrading else now, why)
    if was.degrading and was.well_looks + 1 < WELL_LOOKS:
        return SourceHealth(was.name, True, was.since, was.why, was.well_looks + 1)
    return SourceHealth(was.name)


def complaint_of(output: str) -> str:
    """Return what a node check reports against its node, in one printable line; "": nothing.

    The form is that of Torque's `$node_check_script`: output that begins with ERROR or EVENT is a report, and all else
    is none.

    Args:
        output: of the check; hostile, as it may have texts of users.
    """
    text = output.lstrip()
    if not text.startswith(("ERROR", "EVENT")):
        return ""
    line = printable(" ".join(text.splitlines()[0].split()))[:WHY_LENGTH].rstrip()
    return line.removeprefix("EVENT:").removeprefix("EVENT").strip() or line


def _output_of(source: HealthSource, read_message: t.Callable[[], str], deadline: Deadline) -> str:
    if source.kind != PROGRAM:
        return read_message()
    status, output = run_site_program(pathlib.Path(source.path), deadline.left_s(PROGRAM_S))
    if status and not complaint_of(output):
        raise SiteFault(source.path, f"ended with status {status} and reports neither ERROR nor EVENT")
    return output


def _count(source: HealthSource, before: t.Mapping[str, Counter], now: float) -> dict[str, Counter]:
    """The counters with one more reading; of a file that was never read before, nothing is known to be new."""
    numbers = counters.read_numbers(source)
    found = {path: before.get(path, Counter(number, {})).read(number, now) for path, number in numbers.items()}
    for path in before.keys() - numbers.keys():  # gone, as with a module of the kernel: what it has grown by counts on
        if (one := before[path].read(before[path].last, now)).growth:
            found[path] = one
    return found


def _over_limit(source: HealthSource, found: t.Mapping[str, Counter]) -> str:
    over = [(one.in_a_day, path) for path, one in found.items() if one.in_a_day >= source.limit]
    if not over:
        return ""
    count, path = max(over)
    more = f", and {len(over) - 1} more files" if len(over) > 1 else ""
    return printable(f"{path} has grown by {count} in 24 hours{more}")[-WHY_LENGTH:]


def read_health(settings: NodeSettings) -> NodeHealth:
    """Return what the last look found, of sources that the node still has; nothing where it left no word.

    Args:
        settings: NodeSettings of this node.
    """
    names = [source.name for source in settings.health_sources]
    try:
        data = files.read_json(settings.state_dir / FILE, limit=_LIMIT)
        if data["version"] != VERSION:
            return NodeHealth()
        found = {str(one["name"]): SourceHealth(**one) for one in data["sources"]}
        counting = [source.name for source in settings.health_sources if source.kind == COUNTER]
        numbers = {name: counters.read_counters(data["counters"].get(name)) for name in counting}
        return NodeHealth(tuple(found[name] for name in names if name in found), numbers, tuple(data["ordered"]))
    except (OSError, VTorqueError, LookupError, TypeError, ValueError, AttributeError):
        return NodeHealth()


def note_order(settings: NodeSettings, keys: t.Iterable[str], deadline: Deadline) -> None:
    """Note that a checkpoint or a move of starts was ordered, so that it is not ordered at each look.

    Raises:
        VTorqueError: it cannot be stored.
    """
    with _alone(settings, deadline):
        known = read_health(settings)
        ordered = tuple(dict.fromkeys((*known.ordered, *keys)))
        _write(NodeHealth(known.sources, known.counters, ordered), settings)


def forget_source(name: str, settings: NodeSettings) -> bool:
    """Forget what a source has reported and how its counters have grown, as after a repair.

    Args:
        name: of the source.
        settings: NodeSettings of this node.

    Returns:
        False: the node has no such source.

    Raises:
        VTorqueError: it cannot be stored.
    """
    if name not in {source.name for source in settings.health_sources}:
        return False
    with _alone(settings, Deadline.after(LOCK_S)):
        known = read_health(settings)
        rest = tuple(one for one in known.sources if one.name != name)
        numbers = {
            at: {path: Counter(one.last, {}) for path, one in found.items()} if at == name else found
            for at, found in known.counters.items()
        }
        _write(NodeHealth((*rest, SourceHealth(name)), numbers, known.ordered), settings)
    return True


def forget_all(settings: NodeSettings) -> None:
    """Forget what was known, where the site has no sources any more; that it cannot be done stops nothing.

    Args:
        settings: NodeSettings of this node.
    """
    with contextlib.suppress(OSError):
        (settings.state_dir / FILE).unlink(missing_ok=True)


def _alone(settings: NodeSettings, deadline: Deadline) -> t.ContextManager[tuple[str, ...]]:
    files.make_directory(settings.run_dir)
    lock = settings.run_dir / "locks" / "health"
    return start_lock.lock_alone(lock, settings, Deadline.after(deadline.left_s(LOCK_S)))


def _write(health: NodeHealth, settings: NodeSettings) -> None:
    files.make_directory(settings.state_dir)
    data = {
        "version": VERSION,
        "sources": [dataclasses.asdict(one) for one in health.sources],
        "counters": {name: counters.write_counters(found) for name, found in health.counters.items()},
        "ordered": health.ordered,
    }
    files.write(settings.state_dir / FILE, json.dumps(data))


def check_health(settings: NodeSettings) -> Finding:
    """Check what the last sweep found of the sources of this node's health, none of which is read now."""
    if not settings.health_sources:
        return Finding("health", NONE, "-")
    known = read_health(settings)
    remedy = "vmgr node health says more; after a repair: vmgr node health --forget SOURCE"
    if known.degrading:
        return Finding("health", BAD, "degrading", known.why, remedy)
    if unread := [f"{one.name}: {one.unknown}" for one in known.sources if one.unknown]:
        return Finding("health", WARN, "unknown", "; ".join(unread), "correct health_sources, or what it names")
    if not known.sources:
        return Finding("health", cell="new")
    return Finding("health", cell=str(len(known.sources)))
