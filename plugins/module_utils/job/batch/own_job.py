# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's id; which job this process is the shell of, and what it is to run."""

from __future__ import annotations

import re
import typing as t

from ...errors import SiteFault
from ...frozen import frozen
from ...wire.messages import JOB_ID

if t.TYPE_CHECKING:
    from ...system.process.process_id import ProcessId


@frozen
class OwnJob:
    """The start that a process is the shell of.

    Attributes:
        job_id: of the job.
        run_directory: the name of root's directory for this start (`layout.job_key`), a name and no path.
        process: the one by which root noted this shell, which root's record must name; None: the batch system has
            another proof that a user cannot forge (its cgroup), and the adapter has checked it.
    """

    job_id: str
    run_directory: str
    process: ProcessId | None


@frozen
class JobScript:
    """The script of a batch job.

    Attributes:
        path: where it lies on the node, and will in the guest.
        line: what the user's shell in the guest gets on its standard input.
        content: of the script.
        by_login_shell: whether a login shell runs it; False: it is executed itself, and gets the job's signals.
        arguments: with which it is executed; a login shell has them in its line.
    """

    path: bytes
    line: bytes
    content: bytes
    by_login_shell: bool = True
    arguments: tuple[bytes, ...] = ()


@frozen
class JobId:
    """A job's id inside the product, whichever batch system gave it: `4711.head`, `72[1].head` in an array.

    An adapter reads its system's own ids into this form (`HookAdapter.read_call`, `BatchSystem.job`), and writes them
    for people (`BatchSystem.display_id`).

    Attributes:
        number: of the job, or of the array that it is a member of.
        member: which member of the array; None: it is in none.
        server: the server or cluster that counts.
    """

    number: int
    member: int | None
    server: str

    @classmethod
    def parse(cls, text: str) -> JobId:
        """The id that a text is.

        Args:
            text: as it stands in files and messages of the product.

        Raises:
            SiteFault: it is of another form.
        """
        if not re.fullmatch(JOB_ID, text):
            raise SiteFault(f"job id {text[:80]!r}", "not of the form of a job id")
        head, _dot, server = text.partition(".")
        number, bracket, member = head.rstrip("]").partition("[")
        return cls(int(number), int(member) if bracket else None, server)

    def __str__(self) -> str:
        return f"{self.number}{'' if self.member is None else f'[{self.member}]'}.{self.server}"

    @property
    def array(self) -> str:
        """The array that it is a member of, `72[].head`; "" when it is in none."""
        return "" if self.member is None else f"{self.number}[].{self.server}"
