# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job on its mother superior, from its arrival to its obituary."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import resource
import secrets
import selectors
import signal
import socket
import time
import typing as t

from ..shared import resources, wire
from ..shared.errors import BAD_STATE
from ..shared.job import RUNNING, SUSPENDED, Job
from ..shared.loop import Timer
from ..shared.signals import signal_number
from . import epilogues, hooks, sister
from .jobfiles import ERR, Account, JobFiles, account_of
from .launch import ABORTED, Launch, launch, leave_daemon
from .sister_links import SisterLinks

JOINING, LAUNCHING, STARTED, ENDING = "joining", "launching", "started", "ending"
RETRY, OVER_WALLTIME, KILLED_BY_TERM, NO_ACCOUNT = -3, -11, 271, -1
KILL_DELAY, WALLTIME_KILL_DELAY, SUSPEND_DELAY, CONT_DELAY = 1.2, 3.0, 4.5, 1.0


class Superior:
    """One job that this MOM leads.

    Args:
        on_over: called once, when epilogue and delivery are over, with the obituary.
    """

    def __init__(self, mom: t.Any, job: Job, on_over: t.Callable[[Superior, wire.Message], None]) -> None:
        self.mom = mom
        self.job = job
        self.files: JobFiles = mom.files
        self.session = 0
        self._on_over = on_over
        self._stage = JOINING
        self._account: Account | None = None
        self._sisters = SisterLinks(mom, job, self._heard_sister)
        self._control: socket.socket | None = None
        self._timers: list[Timer] = []
        self._began = 0.0
        self._stopped_at: float | None = None
        self._cpu = 0.0
        self._status = 0
        self._forced: int | None = None
        self._deleting: float | None = None
        self._rerun = False
        self._terminating: t.Callable[[], None] | None = None
        self._epilogue_runs = False

    @property
    def account(self) -> Account:
        """The owner, known once the job has arrived."""
        assert self._account is not None
        return self._account

    def start(self) -> None:
        """The job has arrived: files, presetup, sisters; the MOM's own clock runs from now on."""
        try:
            self._account = account_of(self.job)
        except KeyError:
            self._over(NO_ACCOUNT)
            return
        self._timers.append(self.mom.loop.after(self.mom.alarm, self._too_late))
        self.files.write_common(self.job)
        self.files.write_superior(self.job, self.account)
        self.mom.make_cgroups(self.job)
        if self._presetup():
            self._start_failed(RETRY)
            return
        self._sisters.ask_to_join()
        self._sisters_answered()

    def go_on(self, session: int) -> None:
        """The job runs already, begun by an earlier MOM (`recovery.py`); its end is seen, and how it ended is not."""
        self._account = account_of(self.job)
        self._stage, self.session = STARTED, session
        limit = resources.parse_time(self.job.resources["walltime"])
        gone = time.time() - self.job.started
        self._began = time.monotonic() - gone
        self._timers.append(self.mom.loop.after(max(0.0, limit - gone), self._over_walltime))
        self.mom.loop.stranger(session, lambda: self._ended_as(0, 0.0))

    def _presetup(self) -> int:
        if not self.mom.presetup:
            return 0
        hosts = "+".join(self.job.names)
        base = self.files.base_environment()
        script = hooks.Script(
            path=pathlib.Path(self.mom.presetup),
            owner=0,
            arguments=(*hooks.start_arguments(self.files.mom_priv, self.job), hosts),
            environment=hooks.environment(base, self.job, 0, self.files.home, for_root=True),
            identity=self.account.as_root,
            cwd=str(self.files.mom_priv),
            umask=0o077,
            out=1,
            err=2,
        )
        return hooks.run(script, self.mom.alarm)

    def _heard_sister(self) -> None:
        if self._stage == JOINING:
            self._sisters_answered()
        else:
            self._sisters_begun()
            self._sisters_ended()

    def _sisters_answered(self) -> None:
        if self._stage != JOINING or not self._sisters.have_answered:
            return
        if self._deleting is not None:
            self._status = KILLED_BY_TERM
            self._stage = ENDING
            self._sisters.end()
            self._sisters_ended()
        elif self._sisters.have_refused:
            self._start_failed(RETRY)
        else:
            self._fork()

    def _fork(self) -> None:
        self._stage = LAUNCHING
        ours, theirs = socket.socketpair()
        plan = Launch(
            self.job, self.account, self.files, self.mom.alarm, self.mom.sockets, secrets.token_hex(16).upper(),
            self.mom.has_cgroups,
        )  # fmt: skip
        pid = os.fork()
        if pid == 0:
            launch(plan, theirs)
        theirs.close()
        self._control = ours
        self.mom.loop.watch(ours.fileno(), selectors.EVENT_READ, self._from_child)
        self.mom.loop.child(pid, self._child_ended)

    def _from_child(self, _events: int) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(4096)
        except ConnectionResetError:  # it was ended before it had read our last word
            data = b""
        if not data:
            self._close_control()
            return
        message = json.loads(data)
        if self._stage != LAUNCHING:
            return
        if message["result"]:
            self._start_failed(message["result"])
            return
        self._stage = STARTED
        self.session = message["session"]
        self.files.write_task(self.job, self.session)
        self._cancel_timers()
        self._began = time.monotonic()
        self._watch_walltime()
        self._control.send(b"g")
        self.mom.tell({"op": "started", "job": self.job.id, "session": self.session})
        if self._deleting is not None:
            self._terminate(self._deleting)

    def _close_control(self) -> None:
        if self._control is not None:
            self.mom.loop.forget(self._control.fileno())
            self._control.close()
            self._control = None

    def _too_late(self) -> None:
        if self._stage in (JOINING, LAUNCHING):
            self.mom.log.write(
                "Job", self.job.id, f"child not started after {self.mom.alarm} seconds, server will retry"
            )
            self._start_failed(RETRY)

    def _start_failed(self, status: int) -> None:
        """No job: the sisters are told to forget it, without their epilogues; ours run."""
        self.mom.log.write("Job", self.job.id, f"start return code={status}")
        self._stage = ENDING
        self._status = status
        self._close_control()
        self._sisters.abort()
        self._epilogue()

    def delete(self, delay: float | None) -> None:
        """`qdel`: at once when it runs, after a running prologue, or when the joining sisters have answered."""
        kill_after = KILL_DELAY if delay is None else max(0.0, delay - 1)
        if self._stage == STARTED:
            self._terminate(kill_after)
            return
        if self._stage == JOINING:
            sister.precancel(self.mom, self.job, self.account, 0, by_walltime=False)
        if self._stage != LAUNCHING:
            self._answer(0)
        self._deleting = kill_after

    def _answer(self, code: int, state: str = "") -> None:
        self.mom.tell({"op": "signalled", "job": self.job.id, "code": code, "state": state})

    def _terminate(self, kill_after: float, by_walltime: bool = False) -> None:
        """Sisters are cleaned first; then precancel, TERM, and KILL."""
        if self._terminating is not None:
            self._answer(0)
            return

        def go_on() -> None:
            if self._stage == STARTED:
                sister.precancel(self.mom, self.job, self.account, self.session, by_walltime)
                if self._stopped_at is None:
                    self._term(kill_after)
                else:
                    hooks.kill_session(self.session, signal.SIGCONT)
                    self._timers.append(self.mom.loop.after(CONT_DELAY, functools.partial(self._term, kill_after)))
            self._answer(0)

        self._terminating = go_on
        self._sisters.end()
        self._sisters_begun()

    def _term(self, kill_after: float) -> None:
        if self._stage == STARTED:
            hooks.kill_session(self.session, signal.SIGTERM)
            self._timers.append(self.mom.loop.after(kill_after, self._kill))

    def _sisters_begun(self) -> None:
        if self._terminating is not None and self._sisters.have_begun:
            go_on, self._terminating = self._terminating, lambda: None
            go_on()

    def _kill(self) -> None:
        if self._stage == STARTED:
            hooks.kill_session(self.session)

    def rerun(self) -> None:
        """`qrerun`: kill without precancel; the server queues it again."""
        if self._stage == STARTED:
            self._rerun = True
            self._kill()
        self._answer(0 if self._rerun else BAD_STATE)

    def vanish(self) -> None:
        """The server does not know the job: kill it."""
        self._kill()

    def signal(self, name: str) -> None:
        """`qsig`."""
        if self._stage != STARTED:
            self._answer(BAD_STATE)
        elif name == "suspend":
            hooks.kill_session(self.session, signal.SIGTSTP)
            self._cancel_timers()  # a MOM that waits to stop the session sees no limit passed
            self._timers.append(self.mom.loop.after(SUSPEND_DELAY, self._stop))
        elif name == "resume":
            if self._stopped_at is not None:
                self._began += time.monotonic() - self._stopped_at
                self._stopped_at = None
            self._cancel_timers()
            self._watch_walltime()
            hooks.kill_session(self.session, signal.SIGCONT)
            self._answer(0, RUNNING)
        else:
            hooks.kill_session(self.session, signal_number(name) or 0)
            self._answer(0)

    def _stop(self) -> None:
        """The server hears of a suspension now, and not before; the time until the job goes on is not its own."""
        if self._stage == STARTED:
            hooks.kill_session(self.session, signal.SIGSTOP)
            self._stopped_at = self._stopped_at or time.monotonic()
            self._cancel_timers()
            self._answer(0, SUSPENDED)

    def _watch_walltime(self) -> None:
        limit = resources.parse_time(self.job.resources["walltime"])
        self._timers.append(self.mom.loop.after(max(0.0, self._began + limit - time.monotonic()), self._over_walltime))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _over_walltime(self) -> None:
        if self._stage != STARTED:
            return
        limit = resources.parse_time(self.job.resources["walltime"])
        if self.job.interactive is None:
            text = f"=>> PBS: job killed: walltime {limit + 1} exceeded limit {limit}\n"
            descriptor = self.files.open_stream(self.job, ERR, self.account)
            os.write(descriptor, text.encode())
            os.close(descriptor)
        self._forced = OVER_WALLTIME
        self._terminate(WALLTIME_KILL_DELAY, by_walltime=True)

    def _child_ended(self, status: int, used: resource.struct_rusage) -> None:
        self._close_control()
        if self._stage == LAUNCHING:
            self._start_failed(RETRY)
        if self._stage != STARTED:
            return
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 256 + os.WTERMSIG(status)
        self._ended_as(code, used.ru_utime + used.ru_stime)

    def _ended_as(self, code: int, cpu_s: float) -> None:
        self._stage = ENDING
        self._cancel_timers()
        self._status = code if self._forced is None else self._forced
        self._cpu = cpu_s
        hooks.kill_session(self.session)
        self.job.used = hooks.usage(self._cpu, (self._stopped_at or time.monotonic()) - self._began)
        self._sisters.end()
        self._sisters_ended()

    def _sisters_ended(self) -> None:
        if self._stage == ENDING and self._sisters.have_ended:
            self._epilogue()

    def _epilogue(self) -> None:
        if self._epilogue_runs:
            return
        self._epilogue_runs = True
        self._cancel_timers()
        self._sisters.ignore_losses()
        pid = os.fork()
        if pid == 0:
            self._epilogue_child()
        self.mom.loop.child(pid, lambda _status, _used: self._over(self._status))

    def _epilogue_child(self) -> t.NoReturn:
        leave_daemon({})
        try:
            epilogues.run(self.files, self.job, self.account, self.session, self._status, self.mom.alarm)
            if self._delivers:
                self.files.deliver(self.job, self.account)
            os._exit(0)
        except OSError:
            os._exit(1)

    @property
    def _delivers(self) -> bool:
        """An aborted job gets nothing back; one whose sisters failed never had anything."""
        return self.job.interactive is None and not self._rerun and self._status not in (ABORTED, RETRY)

    def _over(self, status: int) -> None:
        self._sisters.close()
        self.mom.remove_cgroups(self.job)
        self.files.remove(self.job, with_streams=status != ABORTED)
        self._on_over(
            self,
            {
                "op": "obit",
                "job": self.job.id,
                "start": self.job.start_count,
                "status": status,
                "used": self.job.used or hooks.unused(),
                "rerun": self._rerun,
            },
        )
