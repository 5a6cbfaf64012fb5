# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of checkpoints one after the other, of which several share a guest, or a checkpoint to return from.

A guest takes the next fault of `save` only if all that is demanded after the last one was looked at and was right.
One whose job ended, whose worker has a fault of its own, or with which anything was wrong, is removed and not used
again.  A fault that fails behind others in a guest is tried again alone, and so are all faults of a guest that leaves
something at its end: the report then says which of them fail by themselves.

The text runs on nodes, too (`strike_saving.py`): it needs the standard library alone.
"""

from __future__ import annotations

import typing as t

MOST = 25
"""Faults that one guest serves at most: as many are tried again where something is left at its end."""
SHARING = ("save", "return")
"""Whose faults leave the guest, or the checkpoint, to the next one of the same kind."""
Fault = tuple[str, str, str]
"""Place, `before` or `after`, and kind."""
Seen = dict[str, t.Any]


def line_of(who: str, fault: Fault) -> str:
    """Return the line of a fault in reports, in which `VTORQUE_FAULT` is looked for."""
    place, when, kind = fault
    return f"{who} {kind} {when} {place}"


class Node(t.Protocol):
    """What a node does for one fault (`strike_saving.py`)."""

    def prepare_job(self, job_id: str, who: str, fault: Fault) -> Seen:
        """Make what faults of this kind share, before the first of them; return what was answered."""

    def attempt(self, job_id: str, who: str, fault: Fault, number: int) -> Seen:
        """Try the fault that is the `number`th of the job, from 0 on; return what was seen."""

    def finish_job(self, job_id: str) -> Seen:
        """Remove the job; return `absent` and `left`."""


def find_problems(seen: Seen) -> list[str]:
    """Return what is wrong with what was seen of a fault: what is left or half, or does not go on as ever."""
    found = []
    if "answer" not in seen["begun"]:
        return [f"no guest was made before the fault: {seen['begun']}"]
    if not seen["struck"]:
        found.append("the fault did not strike")
    if not seen["goes_on"]:
        found.append("the guest did not go on")
    if "answer" not in seen["again"]:
        found.append(f"what comes next failed: {seen['again']}")
    if "Traceback" in seen["failed"].get("error", ""):
        found.append("the error has a traceback")
    if seen["kind"] == "killed" and seen["who"] in ("save", "park") and seen["failed"] != {}:
        found.append(f"who is killed answered: {seen['failed']}")
    found += [f"in the store: {thing}" for thing in seen["store"]]
    found += [f"left of the start that failed: {thing}" for thing in seen.get("undone", ())]
    return found + find_problems_around(seen)


def find_problems_around(seen: Seen) -> list[str]:
    """Return what is wrong with what is seen after a fault as well as after the removal of a job."""
    found = []
    if "answer" not in seen.get("absent", {"answer": ()}):
        found.append(f"the removal failed: {seen['absent']}")
    if not seen.get("beside", True):
        found.append("the guest of another job is gone")
    return found + [f"left: {thing}" for thing in seen["left"]]


class SharedGuests:
    """Jobs that serve faults.

    Args:
        node: tries them.
        numbers: of jobs that were never there.
        say: takes a report of a fault (it has a `place`), or of the end of a job (it has its `guest`).
        most: faults that one job serves at most.
    """

    def __init__(self, node: Node, numbers: t.Iterator[int], say: t.Callable[[Seen], None], most: int = MOST) -> None:
        self._node, self._numbers, self._say, self._most = node, numbers, say, most
        self._job: _Job | None = None

    def try_fault(self, who: str, fault: Fault) -> None:
        """Try a fault with the guest of the last one if that may serve it, and report it."""
        job = self._job
        if job is not None and (job.who != who or len(job.served) >= self._most):
            self.finish()
            job = None
        self._job = job = job or _Job(self._node, f"{next(self._numbers)}.fe", who)
        before = [*job.served]
        seen = {**job.attempt(fault), "guest_had": before}
        wrong = bool(find_problems(seen))
        if wrong and before:
            self.finish(again=False)
            seen["alone"] = self._alone(who, fault)
        self._say(seen)
        if wrong or who not in SHARING:
            self.finish()

    def finish(self, *, again: bool = True) -> None:
        """Remove the job that serves faults, and report what is left of it.

        Args:
            again: try each of its faults again alone where something is left and it had several.
        """
        job, self._job = self._job, None
        if job is None:
            return
        end = job.finish()
        if again and len(job.faults) > 1 and find_problems_around(end):
            end["alone"] = {line_of(job.who, fault): self._alone(job.who, fault) for fault in job.faults}
        self._say(end)

    def _alone(self, who: str, fault: Fault) -> list[str]:
        """Return what is wrong with a fault in a fresh guest that has no other."""
        job = _Job(self._node, f"{next(self._numbers)}.fe", who)
        seen = job.attempt(fault)
        return [*find_problems(seen), *(f"at its end: {thing}" for thing in find_problems_around(job.finish()))]


class _Job:
    """A job, its guest or its checkpoint, and the faults that it has served."""

    def __init__(self, node: Node, job_id: str, who: str) -> None:
        self._node, self._job_id, self.who = node, job_id, who
        self.faults: list[Fault] = []
        self._begun: Seen | None = None

    @property
    def served(self) -> list[str]:
        """The lines of its faults."""
        return [line_of(self.who, fault) for fault in self.faults]

    def attempt(self, fault: Fault) -> Seen:
        """Try a fault; the first one finds a guest that was made for it."""
        if self._begun is None:
            self._begun = self._node.prepare_job(self._job_id, self.who, fault)
        number = len(self.faults)
        self.faults.append(fault)
        seen: Seen = {"who": self.who, "place": fault[0], "when": fault[1], "kind": fault[2], "begun": self._begun}
        if "answer" in self._begun:
            seen |= self._node.attempt(self._job_id, self.who, fault, number)
        return seen

    def finish(self) -> Seen:
        """Remove it."""
        return {"guest": self._job_id, "served": self.served, **self._node.finish_job(self._job_id)}
