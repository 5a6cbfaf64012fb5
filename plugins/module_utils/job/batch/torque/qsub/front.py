# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands before qsub: it reads arguments and script, takes ours out, and puts in what makes a VM job."""

from __future__ import annotations

import os
import re
import typing as t

from .....errors import UserFault
from .....frozen import frozen
from ....request.command_call import COMMAND_LINE, CommandCall, read_script_file
from ....request.request import MARKER, PREFIX, Request
from ....request.value_types import KeyFault, format_value, nearest
from . import directives, script_text, variable_list
from .arguments import VM, Arguments
from .directives import Script
from .node_request import count_hosts, object_to_sizes, raise_sizes, read_node_request
from .options import Options

if t.TYPE_CHECKING:
    from ....config.parameters import Policy
    from ....request.demand import Demand, NodeSize
    from ...contract import GuestPlaces

PROGRAM = "vsub"
COMMAND = "qsub"
ABOUT = "--about"
"""The one long option that qsub has besides --version; it looks for it wherever it stands, and submits nothing."""
OWN = ("--dry-run", "--json", "--query", "--help", "--version")
OUR_WORD = re.compile(rf"""(^|[\s,;="']){re.escape(PREFIX)}""")
"""Where an attribute begins, or a part of one; not in the name of a host (`stageout=/o@myvtorque:/p`)."""

USAGE = """\
usage: vsub [arguments of qsub] [-vm key=value[,key=value...]]... [script | -]

Submits a job as qsub does; its script runs in a virtual machine made for it.  Everything but -vm is qsub's.

  vsub job.sh                                   in the site's default machine
  vsub -vm img=debian12,vcpus=6,ram=8G job.sh   in this one
  vsub -l nodes=1:ppn=8,walltime=2:00 job.sh    with qsub's own options
  echo 'make check' | vsub                      a script on standard input
  vsub -I                                       a terminal in the machine
  vsub --dry-run -vm vcpus=6 job.sh             shows what would be submitted, and why

In a script, before its first command:

  #PBS -vm img=debian12,vcpus=6

The command line wins over the script, the script over the site's defaults.  A ppn or mem that is too small for
the machine is raised, and that is said.
"""


def command_path(qsub: str) -> str:
    """Return the path of qsub, which is what the site says."""
    return qsub


def read_call(argv: t.Sequence[str], environment: t.Mapping[str, str]) -> QsubCall:
    """Read a call as qsub does; see `FrontAdapter.read_call`.

    Args:
        argv: the arguments.
        environment: POSIXLY_CORRECT says whether options end at the script, PBS_DPREFIX how directives begin.

    Raises:
        UserFault: a long word is neither ours nor qsub's.
    """
    arguments = Arguments.read(argv, permute="POSIXLY_CORRECT" not in environment)
    own = {option.name: option.value for option in arguments.options if option.name.startswith("--")}
    if not {"--help", "--version"} & set(own) and (unknown := set(own) - {*OWN, ABOUT}):
        word = min(unknown)
        hint = "did you mean -vm?" if word == f"--{VM}" else nearest(word, OWN).lstrip("; ")
        raise UserFault(word, "no such option", hint or "see vsub --help")
    return QsubCall(arguments.without(*OWN), own, environment.get("PBS_DPREFIX"))


@frozen
class QsubCall:
    """A call of vsub.

    Attributes:
        arguments: qsub's, with `-vm`.
        own: the long words, and their values.
        prefix: what the environment says for the beginning of directives; None: nothing.
    """

    arguments: Arguments
    own: t.Mapping[str, str | None]
    prefix: str | None = None

    @property
    def question(self) -> bool:
        """Whether qsub speaks about itself."""
        return ABOUT in self.own

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments without those of vsub itself."""
        return self.arguments.argv

    def read_script(self, read_input: t.Callable[[], bytes]) -> QsubJob:
        """Read the script with its directives; see `SubmitCall.read_script`.

        Args:
            read_input: for a script on standard input.

        Raises:
            RequestErrors: there is no such file, or it cannot be read.
        """
        option = self.arguments.last("C")
        own = directives.PREFIX if self.prefix is None else os.fsencode(self.prefix)
        prefix = own if option is None else os.fsencode(option)
        operand = self.arguments.argv[self.arguments.operands[0]] if self.arguments.operands else "-"
        if operand not in ("-", ""):
            script, piped = directives.read(read_script_file(operand), operand, prefix), False
        elif self.arguments.all("I"):
            script, piped = directives.read(b"", "", prefix), False
        else:
            script, piped = directives.read(read_input(), "standard input", prefix), True
        return QsubJob(Options(self.arguments, script), self.prefix, piped)


@frozen
class QsubJob:
    """A call of vsub and its script together.

    Attributes:
        options: of both.
        prefix: what the environment says for the beginning of directives; None: nothing.
        piped: whether the script came on standard input.
    """

    options: Options
    prefix: str | None = None
    piped: bool = False

    @property
    def script(self) -> Script:
        """The script with its directives."""
        return self.options.script

    @property
    def layers(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The texts of `-vm`, those of the script before those of the command line."""
        own = tuple((option.value or "", COMMAND_LINE) for option in self.options.arguments.all(VM))
        return self.script.vm_texts, own

    @property
    def vm_lines(self) -> tuple[int, ...]:
        """Numbers of the lines with a `-vm`."""
        return self.script.vm_lines

    @property
    def shell(self) -> tuple[str, str] | None:
        """What `-S` says, and where."""
        return self.options.last("S")

    @property
    def interactive(self) -> bool:
        """Whether `-I` stands anywhere."""
        return bool(self.options.arguments.all("I")) or self.script.last("I") is not None

    @property
    def directory(self) -> tuple[str, str] | None:
        """What `-d` says, and where."""
        return self.options.last("d")

    @property
    def queue(self) -> str:
        """Return "": a queue may lead to any node."""
        return ""

    @property
    def hosts(self) -> int:
        """How many hosts the job asks for."""
        return count_hosts(read_node_request(self.options, []))

    @property
    def source(self) -> tuple[bytes, str]:
        """The script, and how messages call it."""
        return self.script.data, self.script.name

    @property
    def warning(self) -> str:
        """That no directive counts, where qsub does not say so."""
        return script_text.find_mark(self.script.data) if self.piped else ""

    def objections(self, places: GuestPlaces) -> t.Iterator[KeyFault]:
        """Options of qsub that no VM job can have, or not yet."""
        reasons = {
            "T": "a VM job has no job type: it would choose other hooks than those that start the guest",
            "L": "not for VM jobs: ask by -l nodes=1:ppn=N",
            "D": "a root directory of the node is not there in the guest",
        }
        for name, reason in reasons.items():
            if (found := self.options.last(name)) is not None:
                yield KeyFault(f"-{name}", format_value(found[0]), reason, found[1])
        yield from self._slots_anywhere()
        yield from self._start_directory(places)
        for value, where in self.options.every("W"):
            if OUR_WORD.search(value):
                yield KeyFault("-W", format_value(value), f"{PREFIX} is what vsub itself puts there", where)
        if self.options.arguments.all("x"):
            yield from self._command(places)

    def _slots_anywhere(self) -> t.Iterator[KeyFault]:
        """Cores that are asked for without nodes: no VM job can have them (docs/adr/0017-procs-refused.md)."""
        taken = "is what qsub takes only without -l nodes, which every VM job has"
        reasons = {
            "procs": "the scheduler may put other numbers of slots on each node; guests of a job need equal ones",
            **dict.fromkeys(("ncpus", "size", "mppwidth"), taken),
        }
        for name, reason in reasons.items():
            if (found := self.options.resource(name)) is not None:
                count = found[0] if re.fullmatch("[1-9][0-9]{0,5}", found[0], re.ASCII) else "N"
                hint = f"use -l nodes=1:ppn={count}, or more nodes with fewer each"
                yield KeyFault(name, format_value(found[0]), f"{reason}: {hint}", found[1])

    def _start_directory(self, places: GuestPlaces) -> t.Iterator[KeyFault]:
        """Torque starts a job in PBS_O_INITDIR where that is set, which must exist in the guest."""
        named = [("-d", self.directory)]
        for text, where in self.options.every("v"):
            for item in text.split(","):
                name, equals, value = item.partition("=")
                if name.strip() == variable_list.START and equals:
                    named.append((variable_list.START, (value, where)))
        for key, found in named:
            if found is not None:
                path = os.path.abspath(found[0])  # noqa: PTH100 - a relative one is taken from where qsub is called
                if why := variable_list.cut_off(path) or places.objection(path):
                    yield KeyFault(key, format_value(found[0]), why, found[1])

    def _command(self, places: GuestPlaces) -> t.Iterator[KeyFault]:
        """The command of `-I -x` is run by its path in the guest: a file of the home must be there."""
        arguments = self.options.arguments
        operands = [arguments.argv[index] for index in arguments.operands]
        path = os.path.abspath(operands[0]) if operands else ""  # noqa: PTH100
        if self.script.vm_texts:
            yield KeyFault("-vm", "", "of a command of -x is said on the command line", self.script.name)
        if path and places.lacks(path):
            yield KeyFault("-x", format_value(operands[0]), "lies in your home, and the guest's is empty on this site")

    def object_to_sizes(self, known: t.Sequence[NodeSize]) -> t.Iterator[KeyFault]:
        """What of `-l nodes` and `-l mem` cannot be read, or is more than a node has."""
        faults: list[KeyFault] = []
        nodes = read_node_request(self.options, faults)
        yield from faults
        yield from object_to_sizes(self.options, nodes, known)

    def as_it_is(self) -> CommandCall:
        """Return what qsub gets of a job without virtual machines."""
        return self._command_call(self.options.arguments, None)

    def submission(self, request: Request, need: Demand, policy: Policy) -> tuple[CommandCall, tuple[str, ...]]:
        """Return what qsub gets, and what was raised; the request is the attribute `x`; see `FrontJob.submission`."""
        options, notices = raise_sizes(self.options, read_node_request(self.options, []), need, policy)
        neutral = self.script.neutral if self.script.vm_texts else None
        return self._command_call(_vm_arguments(options, request, policy), neutral), (
            *notices,
            *self._working_directory(),
        )

    def _working_directory(self) -> t.Iterator[str]:
        """A word where PBS_O_WORKDIR will not be the directory that it should be."""
        found = self.options.last("w")
        try:
            path = found[0] if found is not None else os.getcwd()  # noqa: PTH109
        except OSError:  # it is gone, which qsub tells
            return
        if (left := variable_list.as_listed(path)) != path:
            whole = format_value(path)
            rest = format_value(left)
            yield f"PBS_O_WORKDIR will be {rest}: Torque keeps no more of {whole} in its list of variables"

    def _command_call(self, arguments: Arguments, neutral: bytes | None) -> CommandCall:
        if self.prefix is not None and not arguments.all("C"):
            # qsub(1B) promises PBS_DPREFIX, and the qsub of Torque 6 does not look at it
            arguments = arguments.with_front("-C", self.prefix)
        name, lines = self.script.name, ", ".join(map(str, self.vm_lines))
        note = "" if neutral is None else f"without the -{VM} of line {lines}"
        if self.piped:
            return CommandCall(arguments.argv, self.script.data if neutral is None else neutral, -1, name, note)
        # the operand of `-I -x` is a command, and none of qsub's scripts
        refusal = "" if arguments.all("I") else script_text.find_fault(self.script.data, name)
        at = arguments.operands[0] if arguments.operands else -1
        return CommandCall(arguments.argv, neutral, at, name, note, refusal)


def _vm_arguments(options: Options, request: Request, policy: Policy) -> Arguments:
    """The arguments of qsub: the user's, and what makes a VM job of it."""
    other = options.resource("other")
    marks = other[0].split("+") if other and other[0] else []
    if MARKER not in marks:
        options = options.raised("other", "+".join([*marks, MARKER]))
    front = ["-S", f"{policy.prefix_nodes}/bin/vtorque-shell", "-W", f"x={request.encode()}"]
    if policy.pbs_exclusive_node_alloc and not options.arguments.all("n"):
        front.append("-n")
    return options.arguments.without(VM, "S").with_front(*front)
