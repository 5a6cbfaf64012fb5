# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the batch system says of a job and of its nodes, and the few things we tell it, whichever it is."""

from __future__ import annotations

import typing as t

from ...errors import SiteFault
from ...frozen import frozen

if t.TYPE_CHECKING:
    from ..request.demand import NodeSize

CHECKPOINT_SIGNAL, PARK_SIGNAL = 60, 61
"""By which the owner of a job asks its shell for a checkpoint, which has the same (`job/shell/job_signals.py`)."""
NOTE_PREFIX = "vtorque: "
"""What every note of ours begins with; a note without it is an administrator's, and is left alone."""
WANTED, GIVEN_UP, SUSPENDED = "wanted", "given up", "suspended"
"""What becomes of a start: it goes on; it was cancelled or is to be queued again; it is to stand still."""


class UnknownJob(SiteFault):
    """The batch server answered, and it does not know this job (any more)."""


@frozen
class BatchJob:
    """One job as the batch server describes it; root believes this and nothing else about a job.

    Attributes:
        job_id: `4711.head`, `72[1].head` for the member of an array.
        name: the job's name, as the user chose it.
        owner_user: who submitted it.
        owner_host: from where.
        euser: the user as whom the server runs the job; empty before it was started.
        egroup: the group as which it is run.
        state: a letter: Q queued, R running, H held, W waiting, T moving, E ending, S suspended, C complete; an adapter
            whose server has other words translates them.
        queue: the queue it is in.
        slot_hosts: one host name per slot, in the server's order; empty before it was started.
        start_count: how often it was started, this start included.
        x: the whole `-W x=` text, several parts joined by `;`.
        jobtype: what the user said with `-T`, or "".
        init_work_dir: from which directory it was submitted, or where it starts, as the server has it.
        session_id: session of the job's shell on the mother superior, 0 before it exists.
        substate: the server's number for the state in detail.
        interactive: whether it was submitted with `-I`.
        walltime_s: seconds asked for, 0 when nothing is said.
        variables: of the submission; empty where the server does not show it.
        submit_args: arguments of the command that took it, for people.
        resource_list: what it asks for, by resource; `mem` in the form of `request.demand.parse_batch_memory`;
            `devices`: those of nodes that no guest can have yet.
        account: what the user said with `-A`, or "".
        hold_types: letters of the holds on the job (`u`, `o`, `s`), `n` or "" for none.
        exit_status: how it ended; None before that.
        comment: what scheduler, operator or we said of it, or "".
        started_s: when it was started last, in seconds since the epoch; 0 before that.
        node_exclusive: whether no other job runs on its nodes.
        slots_shared: whether other jobs may be given the same slots.
        memory_uncounted: whether its nodes give memory to jobs without a count.
        preface: the first line of text that the command wrote before its answer, or "" (a wrapper's warning).
        alias: as its user calls it where that is not its own number, `33_1` for the member of an array; or "".
        granted: devices of hosts that the server gave to the job, `host/resource/index` each: `cn1/gpus/0`.
        rerunnable: whether it may be queued again once it runs; True where the server does not report it.
    """

    job_id: str
    name: str
    owner_user: str
    owner_host: str
    euser: str
    egroup: str
    state: str
    queue: str
    slot_hosts: tuple[str, ...]
    start_count: int
    x: str
    jobtype: str
    init_work_dir: str
    session_id: int
    substate: int
    interactive: bool
    walltime_s: int
    variables: dict[str, str]
    submit_args: str
    resource_list: dict[str, str]
    account: str
    hold_types: str = ""
    exit_status: int | None = None
    comment: str = ""
    started_s: int = 0
    node_exclusive: bool = False
    slots_shared: bool = False
    memory_uncounted: bool = False
    preface: str = ""
    alias: str = ""
    granted: tuple[str, ...] = ()
    rerunnable: bool = True

    @property
    def nodes(self) -> tuple[str, ...]:
        """The job's nodes without repetition, the mother superior first."""
        return tuple(dict.fromkeys(self.slot_hosts))


@frozen
class PastJob:
    """A start of a job as the server wrote it down.

    Attributes:
        euser: the user as whom it ran.
        nodes: of this start, without repetition, the mother superior first.
        start_count: how many starts are written down.
    """

    job_id: str
    euser: str
    nodes: tuple[str, ...]
    start_count: int


@frozen
class BatchNode:
    """One node as the batch server describes it.

    Attributes:
        states: the server's words: `free`, `job-exclusive`, `offline`, `down`, several at a time.
        slots: how many job slots it has (`np`): the largest ppn that fits.
        memory_mib: physical memory, 0 while the node never reported it.
        properties: what jobs may ask of it by name.
        note: what somebody wrote about it, or "".
        jobs: the jobs that have slots of it.
        preface: the first line of text that the command wrote before its answer, or "" (a wrapper's warning).
        message: what the batch system's own check of the node reports, or "".
    """

    name: str
    states: frozenset[str]
    slots: int
    memory_mib: int
    properties: frozenset[str]
    note: str
    jobs: frozenset[str] = frozenset()
    preface: str = ""
    message: str = ""

    @property
    def offline(self) -> bool:
        """Whether the server keeps new jobs away because somebody said so."""
        return "offline" in self.states


@frozen
class ServerSettings:
    """What the batch server allows.

    Attributes:
        operators: `user@host`, as the server has them.
        managers: the same.
        query_other_jobs: whether each user sees the jobs of all users.
        down_on_error: whether it takes a node out of use whose hooks fail.
    """

    operators: tuple[str, ...]
    managers: tuple[str, ...]
    query_other_jobs: bool
    down_on_error: bool


class BatchSystem(t.Protocol):
    """A batch system, as far as we need one; every call has a deadline, every failure is a `SiteFault`."""

    def job(self, job_id: str) -> BatchJob:
        """The job as the server sees it now.

        Args:
            job_id: as the batch system names it.

        Returns:
            What the server says of it.

        Raises:
            UnknownJob: the server answered that there is none.
            SiteFault: the server did not answer in time, or what it answered is no answer.
        """

    def all_jobs(self) -> tuple[BatchJob, ...]:
        """Every job that the server knows: many, on a large site.

        Raises:
            SiteFault: the server did not answer in time, or what it answered is no answer.
        """

    def nodes(self) -> tuple[BatchNode, ...]:
        """All nodes of the site.

        Returns:
            Each with its state, slots and note.

        Raises:
            SiteFault: the server did not answer in time, or what it answered is no answer.
        """

    def node(self, name: str) -> BatchNode:
        """One node, by its long or short name.

        Raises:
            SiteFault: the server knows none, or more than one, of that name, or did not answer.
        """

    def node_sizes(self, queue: str, wanted: str | None) -> tuple[NodeSize, ...]:
        """The sizes of the nodes that a job may get, whatever their state.

        Args:
            queue: which the job asks for (`FrontJob.queue`).
            wanted: a property that nodes must have; None: all may be taken.

        Raises:
            SiteFault: the server did not answer in time, or what it answered is no answer.
        """

    def offline(self, node: str, note: str) -> BatchNode:
        """Keep new jobs away from a node, with a note of ours.

        A node that carries somebody else's note, or was set offline by somebody else, is left as it is.

        Args:
            node: its name, long or short.
            note: why; `NOTE_PREFIX` is put before it.

        Returns:
            The node as it was read back: `.offline` says whether jobs stay away from it.

        Raises:
            SiteFault: it could not be done, or was not there when it was read back.
        """

    def note(self, node: str) -> str:
        """What is written about a node, or "".

        Args:
            node: its name, long or short.

        Returns:
            The note, ours or an administrator's; "" when there is none.

        Raises:
            SiteFault: there is no such node, or the server did not answer.
        """

    def jobs(self, node: str) -> frozenset[str]:
        """The jobs that have slots of a node.

        Args:
            node: its name, long or short.

        Returns:
            Their ids.

        Raises:
            SiteFault: there is no such node, or the server did not answer.
        """

    def clear(self, node: str, note: str) -> bool:
        """Take back `offline` with this very note; False when the node carries another note or none.

        Args:
            node: its name, long or short.
            note: the one that was given to `offline`.

        Returns:
            Whether the note was vTorque's, and the node is in use again.

        Raises:
            SiteFault: it could not be done, or was still there when it was read back.
        """

    def hold(self, job_id: str) -> None:
        """Hold a job so that its owner can release it, and read that back.

        Raises:
            SiteFault: it could not be done, or was not there when it was read back.
        """

    def suspend(self, job_id: str) -> None:
        """Suspend a job that was resumed and has no room on its nodes, and read that back.

        Raises:
            SiteFault: it could not be done, or was not there when it was read back.
        """

    def request_checkpoint(self, job_id: str, *, park: bool = False) -> None:
        """Have the shell of a job hear that its guests are to be saved; its owner may, as they may signal it.

        With `park` the job is to leave its nodes then, and to rest until its owner releases it.

        Raises:
            SiteFault: it was not sent, or the jobs of this system have no checkpoints.
        """

    def park(self, job_id: str) -> None:
        """End this start of a job that runs, and queue it again, held so that its owner can release it.

        Raises:
            SiteFault: it could not be done, and the job runs on without a hold.
        """

    def server(self) -> ServerSettings:
        """How the batch server is set, as far as it matters to us; anybody may ask.

        Raises:
            SiteFault: it did not answer in time.
        """

    def delete(self, job_id: str) -> None:
        """End a job of the caller's, or take it out of the queue.

        Raises:
            SiteFault: it could not be done.
        """

    def comment(self, job_id: str, text: str) -> None:
        """Leave a word on the job, where the batch system shows it; its scheduler may write another one over it.

        Args:
            job_id: as the batch system names it.
            text: for people; characters that the batch system would misread are left out.

        Raises:
            SiteFault: it could not be done.
        """

    def requeue(self, job_id: str) -> None:
        """End this start of a job from a hook before it runs, and queue it again at once, without a hold.

        A system that learns that by the hook's exit status alone (`HookEnd.AGAIN`) does nothing here.

        Raises:
            SiteFault: it could not be done; the job is neither queued again nor may it run.
        """

    def notify_owner(self, job: BatchJob, lines: t.Sequence[str], *, held: bool) -> None:
        """Let a job's owner read why a start ended, where nothing that a hook writes reaches them.

        That it cannot be told changes nothing.

        Args:
            job: as it was when the start began.
            lines: printable, the first with `vtorque: ` before it.
            held: whether it is held, so that its comment says so already.
        """

    def start_state(self, job_id: str, start: int) -> str:
        """Return what becomes of this start, whose prologue is still at work: WANTED, GIVEN_UP or SUSPENDED.

        A system that tells hooks so itself is asked nothing, and answers WANTED; so does one that does not answer.

        Args:
            job_id: as the batch system names it.
            start: its number.
        """

    def give_back_time(self, job: BatchJob, seconds: float) -> int:
        """Lengthen a job's time limit by what its start took, where the batch system counts that.

        Args:
            job: as it was when the start began.
            seconds: that the start took.

        Returns:
            Seconds by which the limit is longer: whole minutes, or 0 where there is no limit or nothing to give back.

        Raises:
            SiteFault: it could not be done.
        """

    def release_command(self, job_id: str) -> str:
        """Return the command by which a job's owner releases it from `hold` or `park`."""

    def find_id(self, named: str) -> str:
        """Return the id (`JobId`) of a job that somebody names.

        Args:
            named: as users of this batch system write it, in short (`4711`, `72[1]`, `33_1`) or whole.

        Raises:
            UnknownJob: the server answered that there is none.
            SiteFault: it is no name of a job, or the server did not tell.
        """

    def display_id(self, job_id: str) -> str:
        """Return a job's id as users of this batch system write it.

        Args:
            job_id: in the product's form (`JobId`).
        """
