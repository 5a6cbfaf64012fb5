# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The worker of a start: its guests are made, watched for the life of the job, and taken away, under its lock.

client (client.py)    reads the request, waits for the answer, passes on that nobody waits for it any more; ends
worker (this)         a session of its own; decides what happens, and is never in a call that may not return while
                      guests are made; stays
builder (builder.py)  makes the guests, with everything that has to be imported for it; ends when they are ready
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import select
import socket
import time
import traceback
import typing as t

from ...errors import NodeFault, VTorqueError
from ...state import event_log
from ...state.job_log import open_job_log
from ...system import fileserver_probe
from ...system.clock import Deadline
from ...system.process import signals
from ...system.process.process_id import ProcessId
from ...time_budget import BUILDER_GRACE_S, BUILDER_LATE_S, LOCK_SHARE_S
from ...wire import lines
from ..guest import data_disk, site_scripts
from ..state import start_lock
from ..state.settings import NodeSettings
from . import present_absent
from .builder import Builder, BuildRequest, readable
from .handover import WorkerEnd
from .monitor import GIVEN_UP, Watching


def begin(request: BuildRequest) -> tuple[int, int]:
    """Start the worker of a start.

    Returns:
        Its process id, and a descriptor from which its answer can be read: one line of JSON with `guests` or `error`.
        It lives on when we end, but for our end before it answered, which it takes for a cancel.  Afterwards the
        descriptor holds the guests (`handover.py`).
    """
    hearing, answering = (one.detach() for one in socket.socketpair())
    with signals.delay_end_signals():
        pid = os.fork()
        if pid == 0:
            _live(request, answering)
    os.close(answering)
    return pid, hearing


def _live(request: BuildRequest, answering: int) -> t.NoReturn:
    """The child's whole life."""
    try:
        os.setsid()
        os.chdir("/")
        answering = _own_descriptors(request, answering)
        part = request.part
        event_log.configure(
            request.settings.log, program="worker", component="worker", job=part.job_id, job_level=part.log_level
        )
        signals.reset_signals()
        noted = signals.SignalRecorder()  # for good: what was before it is the caller's
        signals.unblock_signals()
        _Worker(request, noted, answering).run()
    except BaseException:  # nobody above us would say it
        log(traceback.format_exc(), event_log.ERROR)
    finally:
        os._exit(0)


def _own_descriptors(request: BuildRequest, answering: int) -> int:
    """The caller waits for the end of its pipes: none of them stays open here.  What we say goes to the job's log."""
    nothing = os.open(os.devnull, os.O_RDWR)
    log_descriptor = nothing
    with contextlib.suppress(OSError, VTorqueError):
        part = request.part
        directory = request.settings.record_dir(part.job_id, part.start)
        log_descriptor = open_job_log(directory, part.owner.uid)
    answer_descriptor = os.dup(answering)
    for number, source in enumerate((nothing, log_descriptor, log_descriptor)):
        os.dup2(source, number)
    os.dup2(answer_descriptor, 3)
    os.set_inheritable(3, False)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    return 3


@dataclasses.dataclass
class _Worker:
    request: BuildRequest
    noted: signals.SignalRecorder
    answering: int

    @property
    def settings(self) -> NodeSettings:
        return self.request.settings

    def run(self) -> None:
        try:
            with present_absent.blame_disk(self.settings):
                lock = start_lock.Lock(start_lock.start_lock(self.settings, self.request.key))
                over = start_lock.OverWatch(self.settings, self.request.key)
        except VTorqueError as error:
            self._answer({"error": error.to_dict()})
            return
        with over:
            builder, why = self._supervise_builder(lock, over)
            if self._may_have_come(builder, over):
                log(f"{why}; the guest may have come all the same, it is awaited again", event_log.WARNING)
                self.request = dataclasses.replace(self.request, again=True)
                builder, why = self._supervise_builder(lock, over)
            made = builder.answer is not None and "guests" in builder.answer
            if why is None and made and builder.ours:
                if not self._share(lock):
                    self._answer({"error": start_lock.StartOver(self.settings, self.request.key).to_dict()})
                    return
                why = start_lock.StartOver(self.settings, self.request.key) if over.over() else None
            if why is None and made:
                if self._answer(builder.answer) or self.request.arrival is not None:
                    if builder.ours:
                        part = self.request.part
                        self._stay(lock, over, WorkerEnd(self.answering, part.job_id, part.start, self.settings))
                    return
                why = VTorqueError("the request was cancelled", "nobody waits for its answer any more")
            if builder.ours:
                self._undo(lock, builder, why)
            else:
                self._answer({"error": why.to_dict()} if why else builder.answer)

    # -- while the guests are made

    def _supervise_builder(
        self, lock: start_lock.Lock, over: start_lock.OverWatch
    ) -> tuple[Builder, VTorqueError | None]:
        """Until the builder has ended; with the reason when we ended it."""
        builder = Builder(self.request, lock)
        why: VTorqueError | None = None
        began = time.monotonic()
        wake_at = self.request.deadline.at - BUILDER_LATE_S
        while True:
            others = (over.fileno(), self.noted.fileno(), self.answering) if why is None else ()
            heard = readable((builder.fileno(), *others), max(0.0, wake_at - time.monotonic()))
            alive = builder.fileno() not in heard or builder.read_output()
            while builder.steps:
                log(builder.steps.pop(0), event_log.DEBUG, "builder")
            if not alive:
                break
            if why is None:
                why = self._reason(over, builder, began)
                if why is not None:
                    if builder.ours:
                        self._bury()
                    builder.request_end()
                    wake_at = time.monotonic() + BUILDER_GRACE_S
            elif time.monotonic() >= wake_at:
                builder.kill()
                wake_at = float("inf")
        status = builder.reap()
        if builder.answer is None and why is None:
            why = VTorqueError(
                f"the guests of start {self.request.key} were not made",
                f"the process that made them ended with status {status} at {builder.doing}",
            )
        return builder, why

    def _may_have_come(self, builder: Builder, over: start_lock.OverWatch) -> bool:
        """Return whether a builder died that awaited a guest of another node, which may run here, and nowhere else."""
        died = builder.ours and builder.answer is None and self.request.arrival is not None
        ended = over.over() or self.noted.first_signal() or self.request.deadline.left_s() <= BUILDER_LATE_S
        return died and not ended

    def _reason(self, over: start_lock.OverWatch, builder: Builder, began: float) -> VTorqueError | None:
        """Why the making must end now; None: it need not."""
        if over.over():
            return start_lock.StartOver(self.settings, self.request.key)
        if self.noted.first_signal():
            return VTorqueError("the request was cancelled", f"{self.noted.first_signal()} at {builder.doing}")
        if _abandoned(self.answering) and self.request.arrival is None:  # libvirt knows whether that one has come
            return VTorqueError(
                "the request was cancelled", f"nobody waits for its answer any more, at {builder.doing}"
            )
        if self.request.deadline.left_s() <= BUILDER_LATE_S:
            late = f"the guests of start {self.request.key} were not made in time"
            passed = f"{time.monotonic() - began:.0f} s had passed at {builder.doing}"
            return fileserver_probe.silent_pool(self.settings.pool, f"{late}: {passed}") or VTorqueError(late, passed)
        return None

    def _share(self, lock: start_lock.Lock) -> bool:
        """From now on others may look at the guests; whoever wants to take them away still waits for us.

        Between the two kinds of lock the kernel may let another in, who takes the guests away: then False.
        """
        try:
            lock.take(self.settings, Deadline.after(LOCK_SHARE_S), shared=True)
        except start_lock.LockTimeout:
            return False
        return lock.current()

    def _undo(self, lock: start_lock.Lock, builder: Builder, why: VTorqueError | None) -> None:
        """Nothing of a start that failed stays, and nobody begins it again."""
        self._bury()
        error: dict[str, t.Any] = why.to_dict() if why else (builder.answer or {})["error"]
        try:
            removed = present_absent.remove_under_lock(self.request.part.job_id, self.request.part.start, self.settings)
            lock.sign(ProcessId.of(os.getpid()), removed)
        except NodeFault as fault:
            # that it cannot even be undone proves more than what was seen first
            error = fault.to_dict() if error["fault"] == VTorqueError.fault else error
            log(f"not undone: {fault}", event_log.ERROR)
        except Exception as fault:  # whatever it is, the caller gets an answer
            log(f"not undone: {type(fault).__name__}: {fault}", event_log.ERROR)
        lock.close()  # who has the answer may count on it
        self._answer({"error": error})

    def _bury(self) -> None:
        try:
            start_lock.bury(self.settings, self.request.key)
        except OSError as error:
            log(f"the tombstone was not set: {error}", event_log.ERROR)

    def _answer(self, answer: dict[str, t.Any] | None) -> bool:
        """Give the answer, once; False when nobody waits for it."""
        try:
            lines.send_line(self.answering, answer)
        except (BrokenPipeError, ConnectionError):
            return False
        return True

    # -- while the job runs

    def _stay(self, lock: start_lock.Lock, over: start_lock.OverWatch, held: WorkerEnd) -> None:
        """Until the start is over, we are told to end, or its guests are given up; then nothing of it stays."""
        gc.freeze()  # what came from the caller stays as it is, and shared
        gc.enable()  # the caller may have done without, for as long as it lives
        watching = Watching(self.request, log)
        try:
            why = watching.run(over, self.noted, held)
            watching.end_samples()
            log(f"worker {os.getpid()} takes the guests away: {why}")
            if over.over() and watching.domains is None:
                log("without libvirt: left to whoever ended the start", event_log.WARNING)
                return
            self._bury()
            watching.end_pause()
            if why != GIVEN_UP:  # what the site does before the job was not done either
                self._end_politely()
            removed = present_absent.remove_under_lock(
                self.request.part.job_id, self.request.part.start, self.settings, watching.domains
            )
            lock.sign(ProcessId.of(os.getpid()), removed)
            log(f"worker {os.getpid()} took away: {', '.join(removed) or 'nothing'}")
        except VTorqueError as error:
            log(f"left to whoever cleans up: {error}", event_log.ERROR)
        finally:
            watching.close()

    def _end_politely(self) -> None:
        """What the site does in guests before they go, and the user's disk given back; nothing of it keeps them."""
        try:
            for problem in site_scripts.run_epilogues(self.request.part.job_id, self.request.part.start, self.settings):
                log(problem, event_log.WARNING)
        except VTorqueError as error:
            log(f"the site's epilogues in the guests: {error}", event_log.WARNING)
        try:
            for problem in data_disk.unmount(self.request.part.job_id, self.request.part.start, self.settings):
                log(problem, event_log.WARNING)
        except VTorqueError as error:
            log(f"the user's disk: {error}", event_log.WARNING)


def _abandoned(fd: int) -> bool:
    """Return whether the reader of this pipe has gone away."""
    poll = select.poll()
    poll.register(fd, 0)
    return bool(poll.poll(0))


def log(text: str, level: str = event_log.INFO, component: str = "") -> None:
    """A line in the job's log; that it cannot be written stops nothing."""
    with contextlib.suppress(OSError):
        event_log.write(2, text, level, component)
