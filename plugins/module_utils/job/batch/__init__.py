# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the batch system says of a job, whichever batch system it is."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class BatchJob:
    """One job as the batch server describes it (`qstat -x -f`); root believes this and nothing else about a job.

    Attributes:
        job_id: `4711.head`, `72[1].head` for the member of an array.
        name: the job's name, as the user chose it.
        owner_user: user part of Job_Owner.
        owner_host: host part of Job_Owner.
        euser: the user as whom the server runs the job; empty before it was started.
        egroup: the group as which it is run.
        state: the server's letter: Q, R, H, W, T, E, S, C.
        queue: the queue it is in.
        exec_host: one host name per slot, in the server's order; empty before it was started.
        start_count: how often it was started, this start included.
        x: the whole `-W x=` text, several parts joined by `;`.
        jobtype: what the user said with `-T`, or "".
        init_work_dir: where Torque starts the job.
        session_id: session of the job's shell on the mother superior, 0 before it exists.
        substate: the server's number for the state in detail.
        interactive: was it submitted with `-I`?
        walltime_s: seconds asked for, 0 when nothing is said.
        variables: Variable_List; empty where the server does not show it.
        submit_args: arguments of qsub, for people.
        resource_list: `Resource_List`, by resource.
        account: what the user said with `-A`, or "".
    """

    job_id: str
    name: str
    owner_user: str
    owner_host: str
    euser: str
    egroup: str
    state: str
    queue: str
    exec_host: tuple[str, ...]
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

    @property
    def nodes(self) -> tuple[str, ...]:
        """The job's nodes without repetition, the mother superior first."""
        return tuple(dict.fromkeys(self.exec_host))
