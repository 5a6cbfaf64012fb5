# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an examination of a node found: one finding a check, and the report of a node."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import typing as t

from ..errors import VTorqueError
from ..text import printable

NONE, OK, WARN, BAD = "none", "ok", "warn", "bad"
INSTALL = "play mikelangelo.vtorque.install"
"""The remedy for what is not as it was installed."""
"""It was not looked at; all is well; worth a word; the node needs somebody."""
STATES = (NONE, OK, WARN, BAD)
"""From good to bad."""

CHECKS = (
    "policy",
    "configuration",
    "collection",
    "server",
    "records",
    "libvirt",
    "virtualisation",
    "vhost-net",
    "affinity",
    "bridge",
    "pool",
    "cache",
    "disk",
    "programs",
    "devices",
    "pages",
    "smt",
    "sched_core",
    "mitigations",
    "ksm",
    "resctrl",
    "sharing",
    "time",
    "alarm",
    "hooks",
    "rights",
    "names",
    "ssh",
    "bare",
    "sweep",
    "left",
    "spool",
    "log",
    "health",
    "note",
)
"""In the order of the table."""

VERSION = 3
DO = "report"
LONGEST_S = 3600
"""Seconds for an examination."""
SETTINGS = 1000
"""More parameters than a report may name."""
_WORDS_LENGTH = 600
_CELL_LENGTH = 20
_LAST_S = 1e11
"""Later than any clock of Linux goes (KTIME_SEC_MAX), in seconds since the epoch."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: which of `CHECKS`.
        state: which of `STATES`.
        cell: what a table shows; short.
        problem: what is wrong, in one line; "" when all is well.
        remedy: what to do about it, in one line.
    """

    check: str
    state: str = OK
    cell: str = OK
    problem: str = ""
    remedy: str = ""

    @property
    def explanation(self) -> str:
        """All there is to say."""
        return f"{self.problem} ({self.remedy})" if self.remedy else self.problem


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What was found on a node, or on a front end.

    Attributes:
        node: its name.
        findings: of all checks that were made, in the order of `CHECKS`.
        began: when the examination began on the node's own clock, in seconds since the epoch; 0: not told.
        ended: when it ended.
        asked: whether the node answered at all.
        settings: a digest of each of its parameters (`job/config/comparison.py`).
        collection: version and digest of what is installed there.
    """

    node: str
    findings: tuple[Finding, ...]
    began: float = 0.0
    ended: float = 0.0
    asked: bool = True
    # pylint: disable=invalid-field-call  # it knows the library's own decorator alone
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    collection: str = ""

    @property
    def well(self) -> bool:
        """Whether nobody needs to look after it."""
        return all(finding.state != BAD for finding in self.findings)

    @property
    def problems(self) -> tuple[str, ...]:
        """What there is to say, what is bad first."""
        found = [finding for finding in self.findings if finding.problem]
        found.sort(key=lambda finding: finding.state != BAD)
        return tuple(f"{finding.check}: {finding.explanation}" for finding in found)

    def with_finding(self, new: Finding) -> Report:
        """The report with this finding in place of the one of the same check; the worse of the two stays."""
        old = self.finding(new.check)
        if old is not None and STATES.index(old.state) >= STATES.index(new.state):
            return self
        rest = [finding for finding in self.findings if finding.check != new.check]
        ordered = sorted([*rest, new], key=lambda finding: CHECKS.index(finding.check))
        return dataclasses.replace(self, findings=tuple(ordered))

    def finding(self, check: str) -> Finding | None:
        """What this check found; None when it was not made."""
        return next((finding for finding in self.findings if finding.check == check), None)

    def to_dict(self) -> dict[str, t.Any]:
        """As JSON shows it."""
        return {"version": VERSION, "well": self.well, **dataclasses.asdict(self)}


def report_from_dict(node: str, data: t.Any) -> Report:
    """The report that a node gave of itself; what it says is shown, and believed of nobody else.

    Args:
        node: which was asked.
        data: what it answered.

    Returns:
        The report, with printable texts of bounded length.

    Raises:
        VTorqueError: it is not of the form.
    """
    try:
        if data["version"] != VERSION:
            raise ValueError("is of another version")
        found = [
            Finding(
                str(one["check"]),
                str(one["state"]),
                _text(one["cell"], _CELL_LENGTH),
                _text(one["problem"]),
                _text(one["remedy"]),
            )
            for one in data["findings"][: len(CHECKS)]
        ]
        if any(one.check not in CHECKS or one.state not in STATES for one in found):
            raise ValueError("names unknown checks")
        settings = {_text(name, 64): _text(data["settings"][name], 64) for name in sorted(data["settings"])[:SETTINGS]}
        return Report(
            node,
            tuple(found),
            _moment(data["began"]),
            _moment(data["ended"]),
            settings=settings,
            collection=_text(data["collection"], 64),
        )
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise VTorqueError(f"{node} gave no report", str(error)[:100], "is the same version installed there?") from None


def _moment(value: t.Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < _LAST_S:  # so that it is no NaN either
        raise ValueError("says a time that no clock has")
    return seconds


def _text(value: object, length: int = _WORDS_LENGTH) -> str:
    return printable(str(value)[:length])


def finding_of(check: str, error: VTorqueError | OSError) -> Finding:
    """The finding that a failed check makes.

    Args:
        check: which.
        error: how it failed.
    """
    if isinstance(error, VTorqueError):
        why = f"{error.what}: {error.why}" if error.why else error.what
        return Finding(check, BAD, BAD, _text(why), _text(error.hint))
    return Finding(check, BAD, BAD, _text(error))


def examine(checks: t.Mapping[str, t.Callable[[], Finding]], timeout_s: float) -> tuple[Finding, ...]:
    """Make checks side by side, none of which can hold up the others.

    Args:
        checks: by their names; an error that one raises is its finding.
        timeout_s: seconds for all together.

    Returns:
        One finding a check, in the order given; one that has no end is bad.
    """
    ends: dict[str, concurrent.futures.Future[Finding]] = {name: concurrent.futures.Future() for name in checks}

    def work(name: str) -> None:
        try:
            ends[name].set_result(checks[name]())
        except (VTorqueError, OSError) as error:
            ends[name].set_result(finding_of(name, error))
        except Exception as error:
            ends[name].set_result(Finding(name, BAD, BAD, f"a fault in vTorque itself: {error!r}"[:_WORDS_LENGTH]))

    for name in checks:
        # a call that hangs in C cannot be ended; a daemon ends with the program
        threading.Thread(target=work, args=(name,), daemon=True).start()
    concurrent.futures.wait(ends.values(), timeout=timeout_s)
    late = f"gave no answer within {timeout_s:.0f} s"
    return tuple(end.result() if end.done() else Finding(name, BAD, "silent", late) for name, end in ends.items())


class ReportRequest(t.NamedTuple):
    """A node is asked to examine itself.

    Attributes:
        timeout_s: seconds for all checks.
    """

    timeout_s: float

    def to_dict(self) -> dict[str, t.Any]:
        """As it goes over the connection."""
        return {"version": VERSION, "do": DO, "timeout_s": self.timeout_s}


def request_from_dict(data: t.Mapping[str, t.Any]) -> ReportRequest:
    """What a node was asked.

    Args:
        data: what came.

    Raises:
        VTorqueError: it is not of the form.
    """
    timeout_s = data.get("timeout_s")
    if set(data) != {"version", "do", "timeout_s"} or data["version"] != VERSION:
        raise VTorqueError("the request for a report", "is of another version", "install the same one everywhere")
    if not isinstance(timeout_s, (int, float)) or isinstance(timeout_s, bool) or not 1 <= timeout_s <= LONGEST_S:
        raise VTorqueError("the request for a report", f"timeout_s is not from 1 to {LONGEST_S}")
    return ReportRequest(float(timeout_s))
