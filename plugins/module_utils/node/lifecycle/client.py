# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that was asked for guests: it starts their worker, waits for its answer, and passes on a cancel."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import typing as t

from ...errors import VTorqueError, error_from_dict
from ...system.clock import Deadline
from ...system.process import signals
from ...time_budget import CANCEL_UNDO_S, WORKER_ANSWER_S
from ...wire.form import from_dict
from ...wire.messages import NodePart
from ...wire.moves import Arrival
from ...wire.node_answers import GuestFacts
from ..state.settings import NodeSettings
from ..system.cpus import Cores
from . import present_absent, worker
from .builder import BuildRequest
from .handover import CallerEnd

CHUNK = 1 << 16


def request_guests(
    part: NodePart,
    settings: NodeSettings,
    deadline: Deadline,
    *,
    caller: int | None = None,
    tell: t.Sequence[str] = (),
    hold: CallerEnd | None = None,
    cores: Cores = (),
    cpusets: tuple[str, ...] = (),
    follow: t.Sequence[str] = (),
    arrival: Arrival | None = None,
) -> tuple[GuestFacts, ...]:
    """Have this node's guests of a start made by a worker, which stays with them.

    Args:
        part: what is asked; its guests.
        settings: NodeSettings of this node.
        deadline: when there must be an answer.
        caller: the descriptor on which the answer will be written: when nobody reads it any more, that is a cancel.
        tell: the command by which the job's mother superior is told of a lost guest; () where she is this node.
        hold: keeps the guests until they are told of their job; None: they stay anyway.
        cores: the job's on this node.
        cpusets: where the job's cpuset will be, if it is still to come.
        follow: the command that follows the suspension of the job; () where she is another node.
        arrival: of the guest that comes from another node; None: all are made here.

    Returns:
        The guests, by rank.

    Raises:
        VTorqueError: they are not ready, and what was begun was undone; the class says whose fault it is.
    """
    request = BuildRequest(part, settings, deadline, tuple(tell), cores, cpusets, tuple(follow), arrival)
    holding = hold or CallerEnd()
    try:
        with signals.SignalRecorder() as noted:
            pid, hearing = worker.begin(request)
            holding.take(hearing, deadline)
            answer, cancelled = _wait(request, pid, hearing, noted, caller)
        if answer is None:
            _remove_after_kill(request, pid)
        data = json.loads(answer)
        if "guests" not in data:
            raise error_from_dict(data["error"])
        if cancelled:  # the answer was under way already; the worker takes the guests away all the same
            raise VTorqueError("the request was cancelled", "when the guests were ready")
        found = tuple(from_dict(GuestFacts, one) for one in data["guests"])
    except BaseException:
        holding.close()
        raise
    if hold is None:
        holding.keep_guests()
        holding.close()
    return found


def _wait(
    request: BuildRequest, pid: int, hearing: int, noted: signals.SignalRecorder, caller: int | None
) -> tuple[bytes | None, bool]:
    """The worker's answer, None when it ended without one; and whether it was told to end."""
    poll = select.poll()
    poll.register(hearing, select.POLLIN)
    poll.register(noted.fileno(), select.POLLIN)
    if caller is not None:
        poll.register(caller, 0)  # nothing but that its other end is gone
    until = Deadline.after(request.deadline.left_s() + WORKER_ANSWER_S)
    answer, cancelled = b"", False
    began = time.monotonic()
    while not until.passed:
        heard = {fd for fd, _events in poll.poll(until.left_s(86_400.0) * 1000 + 1)}
        if hearing in heard:
            data = os.read(hearing, CHUNK)
            answer += data
            if answer.endswith(b"\n"):
                return answer, cancelled
            if not data:
                return None, cancelled
        elif heard:  # a signal, or the caller went away: the worker undoes what it began, and says so
            for fd in (noted.fileno(), *([] if caller is None else [caller])):
                poll.unregister(fd)
            os.kill(pid, signal.SIGTERM)
            until = Deadline.after(CANCEL_UNDO_S)
            cancelled = True
    raise VTorqueError(
        f"the worker of start {request.key} (process {pid}) on {request.settings.node_name}",
        f"gave no answer within {time.monotonic() - began:.0f} s",
    )


def _remove_after_kill(request: BuildRequest, pid: int) -> t.NoReturn:
    """The worker was killed: what it made is nobody's."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    error = VTorqueError(f"the worker of start {request.key} (process {pid})", "was killed before it had an answer")
    with contextlib.suppress(Exception):  # `left` tells it
        present_absent.absent(request.part.job_id, request.part.start, request.settings, Deadline.after(CANCEL_UNDO_S))
    raise error
