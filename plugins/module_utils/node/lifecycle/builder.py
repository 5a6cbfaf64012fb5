# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that does what may block: it makes the guests of a start for the worker, and ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import traceback
import typing as t

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...frozen import frozen
from ...state import event_log
from ...state.layout import job_key
from ...system.clock import Deadline
from ...system.process import signals
from ...system.process.forking_process import Caller, ForkingProcess
from ...system.process.process_id import ProcessId
from ...wire import lines
from ...wire.form import to_dict
from ...wire.messages import NodePart
from ...wire.moves import Arrival
from ..state import start_lock
from ..state.settings import NodeSettings
from ..storage import user_disk, virtiofsd
from ..system.cpus import Cores
from . import present_absent

CHUNK = 1 << 16


@frozen
class BuildRequest:
    """What the worker has its builder create.

    Attributes:
        tell: the command by which the job's mother superior is told of a lost guest (`LostGuest` on its standard
            input); empty where she is this node.
        cores: the job's on this node; (): libvirt places the guests.
        cpusets: where the cpuset of the job will be, which replaces these cores, as patterns below a hierarchy of
            cgroups; empty where none is to come.
        follow: the command that follows the suspension of the job (`pausing.Follower`); empty on a sister.
        arrival: of the guest that comes from another node; None: all are made here.
        again: a builder died that awaited this guest, whose place is made.
    """

    part: NodePart
    settings: NodeSettings
    deadline: Deadline
    tell: tuple[str, ...] = ()
    cores: Cores = ()
    cpusets: tuple[str, ...] = ()
    follow: tuple[str, ...] = ()
    arrival: Arrival | None = None
    again: bool = False

    @property
    def key(self) -> str:
        """`state.layout.job_key` of the start."""
        return job_key(self.part.job_id, self.part.start)


class Builder:
    """A child that makes guests, as its parent sees it.

    Attributes:
        ours: it holds the lock of the start alone, so that the start is ours to make and to bury.
        doing: what it said last that it does.
        steps: what it said that it does, until its parent has logged it.
        answer: `guests` or `error`; None: it has not come to an end, or ended without a word.
    """

    def __init__(self, request: BuildRequest, lock: start_lock.Lock) -> None:
        self.ours = False
        self.doing = "nothing yet"
        self.steps: list[str] = []
        self.answer: dict[str, t.Any] | None = None
        self._lines = lines.LineReader()
        self._hearing, saying = os.pipe2(os.O_CLOEXEC)
        worker = os.getpid()
        with signals.delay_end_signals():
            self._pid = os.fork()
            if self._pid == 0:
                _work(request, lock, saying, worker)
            with contextlib.suppress(OSError):  # the child does it too: whoever is first
                os.setpgid(self._pid, self._pid)
        os.close(saying)

    @leaves_nothing
    def fileno(self) -> int:
        """Readable when it said something or ended."""
        return self._hearing

    @leaves_nothing
    def read_output(self) -> bool:
        """Take in what it said; False when it has ended."""
        data = os.read(self._hearing, CHUNK)
        for line in self._lines.feed(data):
            message = json.loads(line)
            self.ours = message.get("ours", self.ours)
            self.doing = message.get("doing", self.doing)
            self.steps += [self.doing] if "doing" in message else []
            if "guests" in message or "error" in message:
                self.answer = message
        return bool(data)

    def request_end(self) -> None:
        """Have the builder end; what it has created stays."""
        os.kill(self._pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the builder and what it started; libvirt may keep it in a call that does not return."""
        os.killpg(self._pid, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for it, which has ended; its exit status, negative for a signal."""
        os.close(self._hearing)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _work(request: BuildRequest, lock: start_lock.Lock, saying: int, worker: int) -> t.NoReturn:
    """The child's whole life."""
    try:
        os.setpgid(0, 0)
        # a worker that is killed takes its builder with it: nothing is made behind the back of who cleans up
        event_log.configure(program="builder", component="builder")
        if signals.die_with(worker):
            signals.raise_on_signal()
            signals.unblock_signals()
            # before libvirt has a thread in this process
            with ForkingProcess((virtiofsd.start, user_disk.serve_image, user_disk.serve)) as caller:
                lines.send_line(saying, _answer(request, lock, saying, caller))
    except signals.Terminated:
        pass
    except BaseException:  # nobody above us would say it
        event_log.note(2, traceback.format_exc(), event_log.ERROR)
    finally:
        os._exit(0)


def _answer(request: BuildRequest, lock: start_lock.Lock, saying: int, caller: Caller) -> dict[str, t.Any]:
    @leaves_nothing
    def step(what: str) -> None:
        lines.send_line(saying, {"doing": what})

    try:
        facts = (
            None
            if _lock(request, lock, saying)
            else present_absent.find(request.part, request.settings, request.deadline)
        )
        if facts == ():
            _upgrade(request, lock, saying)
        if not facts:
            facts = present_absent.ensure_guests(
                request.part,
                request.settings,
                request.deadline,
                step,
                cores=request.cores,
                arrival=request.arrival,
                again=request.again,
                caller=caller,
            )
        return {"guests": [to_dict(one) for one in facts]}
    except VTorqueError as error:
        return {"error": error.to_dict()}
    except Exception as error:  # whatever it is, the caller gets an answer
        return {"error": VTorqueError(f"a fault in vTorque itself: {type(error).__name__}", str(error)).to_dict()}


def _lock(request: BuildRequest, lock: start_lock.Lock, saying: int) -> bool:
    """Hold the start alone, or share it with who made or makes its guests; True: alone."""
    settings = request.settings
    with present_absent.blame_disk(settings):
        start_lock.refuse_if_over(settings, request.key)
        lines.send_line(saying, {"doing": "the wait for the lock of the start"})
        alone = lock.take_now()
        if not alone:
            lock.take(settings, request.deadline, shared=True)
        if not lock.current():
            start_lock.refuse_if_over(settings, request.key)
            raise VTorqueError(f"start {request.key}", "its guests are being taken away")
        if alone:
            _sign(lock, saying)
    return alone


def _upgrade(request: BuildRequest, lock: start_lock.Lock, saying: int) -> None:
    holder = lock.holder()
    if not lock.take_now():
        raise VTorqueError(
            f"the guests of start {request.key} are there, and not as they are asked for",
            f"process {holder or 'unknown'} watches them; they are lost, or others",
            "take them away first",
        )
    _sign(lock, saying)


def _sign(lock: start_lock.Lock, saying: int) -> None:
    lock.sign(ProcessId.of(os.getppid()))
    lines.send_line(saying, {"ours": True})


@leaves_nothing
def readable(filenos: t.Iterable[int], timeout_s: float) -> set[int]:
    """Which of these can be read, or have lost their other end, at the latest after so many seconds."""
    poll = select.poll()
    for fileno in filenos:
        poll.register(fileno, select.POLLIN)
    return {fd for fd, _events in poll.poll(min(timeout_s, 86_400.0) * 1000 + 1)}
