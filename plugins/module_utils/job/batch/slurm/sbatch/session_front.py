# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands before salloc: a session, or a command, in a virtual machine of the job (`vsalloc`).

Options and sizes are read and asked for as those of sbatch (`front`); salloc then runs, on the job's first node, the
srun by which it starts a shell itself, with our shell in place of the user's.
"""

from __future__ import annotations

import os
import typing as t

from .....errors import UserFault
from ....request.command_call import CommandCall
from ....request.value_types import KeyFault
from ...shared.commands_directory import commands_directory
from .. import job_shell
from . import front, options
from .batch_script import Script

if t.TYPE_CHECKING:
    from ....config.parameters import Policy
    from ....request.demand import Demand
    from ....request.request import Request
    from ...contract import GuestPlaces

PROGRAM = "vsalloc"
COMMAND = "salloc"
USAGE = """\
usage: vsalloc [options of salloc] [-vm key=value[,key=value...]]... [command [arguments]]

Asks for nodes as salloc does; a shell, or the command, runs in a virtual machine made for it.

  vsalloc                                          a shell in the site's default machine
  vsalloc -vm img=debian12,vcpus=6 -t 1:00:00      in this one, for an hour
  vsalloc -N2 -vm img=debian12 mpirun ./ring       a command, with a machine on each of two nodes
  vsalloc --dry-run -vm vcpus=6                    shows what would be asked for, and why

A shell needs a terminal.
"""
STEP = ("--interactive", "--preserve-env", "--mpi=none", "-n1", "-N1")
"""As salloc starts a shell itself (`InteractiveStepOptions`), and one task."""


def command_path(qsub: str) -> str:
    """Return the path of salloc, which is beside where qsub would be."""
    return f"{qsub.rpartition('/')[0]}/{COMMAND}"


BOOTS = "it begins when its virtual machines have booted; Slurm may write 'Prolog hung' meanwhile, which is no fault"
"""salloc 24.11 writes it of each Prolog that takes longer than some seconds."""


class Call(front.Call):
    """A call of vsalloc; its operands are a command and its arguments."""

    __slots__ = ()

    def read_script(self, read_input: t.Callable[[], bytes]) -> Job:
        """Return the job, which has no script.

        Args:
            read_input: is not called: standard input is the session's.

        Raises:
            UserFault: a shell is wanted, and there is no terminal.
        """
        terminal = os.isatty(0) and os.isatty(1)
        if not (self.operands or terminal or self.own):
            raise UserFault("a shell", "needs a terminal", "give a command, or submit a script with vsbatch")
        return Job(self, Script(b"", PROGRAM))


def read_call(argv: t.Sequence[str], environment: t.Mapping[str, str]) -> Call:
    """Read the arguments; see `front.read_call`.

    Args:
        argv: without the program's name.
        environment: of the user.

    Raises:
        UserFault: as there.
    """
    read = front.read_call(argv, environment, options.OF_SALLOC)
    return Call(read.options, read.vm, read.given, read.wrap, read.operands, read.own, read.variables)


class Job(front.Job):
    """What a user of vsalloc asks for."""

    __slots__ = ()
    command = COMMAND

    @property
    def interactive(self) -> bool:
        """Whether a shell is wanted."""
        return not self.call.operands

    def objections(self, places: GuestPlaces) -> t.Iterator[KeyFault]:
        """Options that no VM job can have, or not yet."""
        yield from super().objections(places)
        if self.call.wrap is not None:
            yield KeyFault("--wrap", "", "is sbatch's: give the command and its arguments as words")
        if "no-shell" in self.options:
            yield KeyFault("--no-shell", "", "a machine is there for the shell or the command in it: leave it out")

    def as_it_is(self) -> CommandCall:
        """Return what salloc gets of a job without virtual machines."""
        return CommandCall(self.call.argv)

    def submission(self, request: Request, need: Demand, policy: Policy) -> tuple[CommandCall, tuple[str, ...]]:
        """Return what salloc gets; the request goes into the job's comment; see `FrontJob.submission`.

        Raises:
            UserFault: as of `front.Job.submission`.
        """
        pty = ("--pty",) if os.isatty(0) and os.isatty(1) else ()
        step = (
            str(commands_directory(policy, front_end=True) / "srun"),
            *STEP,
            *pty,
            f"{policy.prefix_nodes}/bin/vtorque-shell",
        )
        command = (job_shell.COMMAND, *self.call.operands) if self.call.operands else ()
        notices = () if {"quiet", "Q"}.intersection(self.options) else (BOOTS,)
        return CommandCall((*self.job_options(request, need, policy), *step, *command)), notices
