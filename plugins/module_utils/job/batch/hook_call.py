# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A call of a hook as every batch system's adapter reads it, its end, and its time."""

from __future__ import annotations

import enum
import os
import pwd
import time
import typing as t

from ...effects import leaves_nothing
from ...frozen import frozen
from ...system.process.process_id import ProcessId
from ...time_budget import HOOK_RESERVE_S


class Role(enum.StrEnum):
    """When a hook is called, and on which of the job's nodes."""

    BEGIN_FIRST = "begin-first"
    """Before the job, on the node that will run its script."""
    BEGIN_OTHER = "begin-other"
    END_FIRST = "end-first"
    END_OTHER = "end-other"


class HookEnd(enum.Enum):
    """How a hook of ours ended; `HookAdapter.exit_status` has the batch system's word for it."""

    DONE = enum.auto()
    """The job's shell may come: it finds a ready record or a refusal, and on other nodes nothing is wanted."""
    AGAIN = enum.auto()
    """This start ends, and the job is queued again or held; all that makes that safe was read back."""
    FAILED = enum.auto()
    """Our program could not do its work; nothing of a VM job may run."""
    BRAKE = enum.auto()
    """As FAILED, of a member of an array that others would follow within seconds."""
    UNREADABLE = enum.auto()
    """The job's id, its user or its nodes are of another form: nothing was created, and its shell finds no record."""


@frozen
class HookCall:
    """One call of a hook.

    Attributes:
        role: when and where.
        marked: the job bears our marker; False: that cannot be told by the call.
        parent: the process that started the hook, by which the job's shell may be recognised; 0: it tells nothing.
        mother_superior: the job's first node; "": the call does not say.
        job_id: which job, of the form of a job id (`JobId`).
        user: as whom the job runs.
        exit_status: of the job, when it ended; None: it did not, or is not known.
        session: of the job on this node, when it ended; 0: there is none, or it is not known.
        start: which start of the job begins or ended here, where the call says so; None: it does not.  When a job
            ended, each start up to this one is over.
        nodes: the job's nodes, the first one before the others; (): the call does not say.
    """

    role: Role
    marked: bool
    parent: int
    mother_superior: str
    job_id: str
    user: str
    exit_status: int | None
    session: int = 0
    start: int | None = None
    nodes: tuple[str, ...] = ()

    @property
    def first(self) -> bool:
        """Whether this is the node that runs the job's script."""
        return self.role in (Role.BEGIN_FIRST, Role.END_FIRST)

    @property
    def uid(self) -> int | None:
        """The user's, as this node knows them; None when it does not."""
        try:
            return pwd.getpwnam(self.user).pw_uid
        except KeyError:
            return None


@frozen
class HookLimits:
    """The batch system's own bound of a hook's time.

    Attributes:
        setting: as its configuration has it, for people.
        figure: the number in it, for a table.
        seconds: after which a hook is ended; infinity: never.
        remedy: takes seconds, and returns what an administrator does so that hooks get them.
    """

    setting: str
    figure: str
    seconds: float
    remedy: t.Callable[[int], str]


@leaves_nothing
def hook_began() -> float:
    """When the batch system started this hook (the launcher is our parent), in seconds of the monotonic clock."""
    ticks = ProcessId.of(os.getppid()).start_ticks
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)


@leaves_nothing
def deadline(ends: float, *, began: float, at_most_s: float, reserve_s: float = HOOK_RESERVE_S) -> float:
    """When the hook's work must be done, in seconds of the monotonic clock.

    Args:
        ends: when the batch system ends the hook (`HookAdapter.hook_ends`).
        began: when the hook was started, in seconds of the monotonic clock.
        at_most_s: the site's own bound, from the start of the hook.
        reserve_s: what is kept of the batch system's time.
    """
    return min(began + at_most_s, ends - reserve_s)
