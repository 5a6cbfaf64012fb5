# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mother superior's own guests begin to boot while Ansible loads, which takes half a second.

The playbook is the same: its plan is there already, and so is, a little later, this node's answer.  What fails here is
left to the playbook, which meets the same fault and tells it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import signal
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import VTorqueError
from ...module_utils.frozen import frozen
from ...module_utils.job.batch.api import BatchJob
from ...module_utils.state import layout
from ...module_utils.system import files
from ...module_utils.system.clock import Deadline
from ...module_utils.system.process.processes import ProcessHandle
from ...module_utils.time_budget import EARLY_NODE_END_S, EARLY_PLAN_S
from . import mark, node_socket
from .node_socket import EarlyNode
from .preloaded import PreloadedRunner
from .spawn import EarlyProgram

if t.TYPE_CHECKING:
    from ...module_utils.job.config.parameters import Policy
    from ...module_utils.job.plan.job_plan import JobPlan


class HeadStart:
    """All that begins before the site's configuration is read; a context manager.

    Args:
        program: `vtorque-node` of this node, which loads before there is anything to ask; None: nothing begins early,
            and the playbook starts one.
        runner: runs the playbook; it may load, too.
        place: the file that lets the next hook begin early.
        config: the site's configuration, which decides whether it may.
    """

    @leaves_nothing
    def __init__(
        self, program: EarlyProgram | None, runner: PreloadedRunner, *, place: pathlib.Path, config: pathlib.Path
    ) -> None:
        self._program = program
        self._runner = runner
        self._node = EarlyNode(program.socket, program.complaint) if program else None
        self._planner: _Planner | None = None
        self._place = place
        self._config = mark.name_of(config)  # before anybody reads it: what is changed later is another

    def begin(self) -> EarlyNode | None:
        """Let load what plans, and Ansible, which inherits the way to the node's answer.

        Returns:
            That way.
        """
        if self._node is not None and self._runner.ready_to_begin():
            self._planner = _Planner.begin(self._node)
            self._runner.begin({node_socket.VARIABLE: self._node.variable}, (self._node.socket, self._node.complaint))
        return self._node

    def decide(self, *, wanted: bool) -> None:
        """End what has begun, unless the site wants it; so much for this start, and a mark for the next hook.

        Args:
            wanted: `fast_start` of the site's configuration.
        """
        with contextlib.suppress(OSError, VTorqueError):  # then the next start is the straight one
            mark.set_to(self._config if wanted else "", self._place)
        if not wanted:
            self._runner.end()
            self._end_planner()
            self._let_go()

    def go(
        self, job: BatchJob, policy: Policy, *, directory: pathlib.Path, nodefile: pathlib.Path | None, until: float
    ) -> None:
        """Have the start planned and this node asked for its guests; `hand_over` waits for it.

        Args:
            job: the batch server's word.
            policy: the site's.
            directory: the run directory of the start.
            nodefile: the job's node file, if there is one.
            until: when the guests must be ready, in seconds of the monotonic clock.
        """
        if self._planner is not None:
            self._planner.send(_PlanRequest(job, policy, directory, nodefile, until))

    def hand_over(self) -> None:
        """Wait until it has planned and asked.

        When Ansible holds the way to the answer, it is let go of here.  Else it stays open, for its end is a cancel:
        the playbook asks again, and gets the same answer.
        """
        self._end_planner()
        if self._runner.loading:
            self._let_go()

    def __enter__(self) -> HeadStart:
        return self

    def __exit__(self, *_error: object) -> None:
        self._end_planner()
        self._let_go()
        if self._program is not None:
            self._program.wait(EARLY_NODE_END_S)  # what goes on undoing has a worker, which `absent` waits for

    def _end_planner(self) -> None:
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.end()

    def _let_go(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            node.close()


@frozen
class _PlanRequest:
    """What is to be planned; the arguments of `HeadStart.go`."""

    job: BatchJob
    policy: Policy
    directory: pathlib.Path
    nodefile: pathlib.Path | None
    until: float


class _Planner:
    """A child that loads what plans, hears what is to be planned, and asks: what it loads need not stay in memory for
    as long as the guests boot."""

    def __init__(self, pid: int, pipe: int) -> None:
        self._pid = pid
        self._pipe = pipe

    @classmethod
    def begin(cls, node: EarlyNode) -> _Planner:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            try:
                os.close(writing)
                from ..bridge import planning  # in this process, and before it is needed

                with os.fdopen(reading, "rb") as stream:
                    _plan_and_request(node, planning.plan_start, pickle.load(stream))  # noqa: S301 - our parent's
            except (VTorqueError, OSError, EOFError):
                pass  # the playbook tells it
            finally:
                os._exit(0)
        os.close(reading)
        return cls(pid, writing)

    def send(self, request: _PlanRequest) -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(self._pipe), "wb") as stream:
            pickle.dump(request, stream)

    def end(self) -> None:
        """Wait until it has planned, when it was told to; else it ends now."""
        os.close(self._pipe)
        _wait(self._pid, EARLY_PLAN_S)


def _plan_and_request(
    node: EarlyNode, plan_start: t.Callable[[BatchJob, Policy, pathlib.Path | None], JobPlan], request: _PlanRequest
) -> None:
    plan = plan_start(request.job, request.policy, request.nodefile)
    files.write(request.directory / layout.PLAN, plan.to_json())
    node.request(plan.parts[plan.mother_superior], directory=request.directory, until=request.until)


def _wait(pid: int, timeout_s: float) -> None:
    with ProcessHandle(pid) as child:
        if not child.wait(Deadline.after(timeout_s)):
            child.send(signal.SIGKILL)
        os.waitpid(pid, 0)
