# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands before OpenPBS's qsub: it reads arguments and script, takes ours out, and puts in what makes a VM job.

Everything but `-vm` is qsub's, and goes to it as it is, but what no VM job can have.  The request travels in a resource
of the site's (`-l vtorque=...`, type string, flag m).  `-S` goes into the request: the launch hook puts our shell in
place of every shell.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ...request.command_call import COMMAND_LINE, CommandCall, read_script_file
from ...request.demand import parse_batch_memory
from ...request.value_types import KeyFault, format_value
from . import qsub_arguments
from .answers import RESOURCE
from .qsub_arguments import Arguments, Chunk, Script

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ...request.demand import Demand, NodeSize
    from ...request.request import Request

PROGRAM = "vsub"
COMMAND = "qsub"
USAGE = """\
usage: vsub [arguments of qsub] [-vm key=value[,key=value...]]... [script | -]

Submits a job as qsub does; its script runs in a virtual machine made for it.  Everything but -vm is qsub's.

  vsub job.sh                                   in the site's default machine
  vsub -vm img=debian12,vcpus=6,ram=8G job.sh   in this one
  vsub -l select=2:ncpus=8 job.sh               with qsub's own options: a machine on each of two nodes
  vsub -J 1-4 job.sh                            an array
  vsub -I                                       a terminal in the machine

In a script, before its first command:

  #PBS -vm img=debian12,vcpus=6        or        #VM img=debian12,vcpus=6

The command line wins over the script, the script over the site's defaults.  A chunk with too little for the machine
gets more, and that is said.
"""

REFUSED = {
    "d": "OpenPBS has no start directory: let the script begin with cd",
    "D": "OpenPBS has no root directory for a job",
    "F": "OpenPBS takes no arguments for a script: let the script read a variable (-v)",
    "G": "no display is forwarded into a virtual machine on OpenPBS yet",
    "i": "OpenPBS hands a script no standard input",
    "L": "in OpenPBS that is -l select=2:ncpus=8",
    "n": "in OpenPBS that is -l place=excl",
    "R": "files of a job are in its user's home, which the virtual machine has too",
    "t": "in OpenPBS an array is -J FIRST-LAST",
    "T": "OpenPBS has no job types",
    "w": "a script begins in its user's home: let it begin with cd",
    "x": "OpenPBS runs no command on a terminal: leave it out",
    "X": "no display is forwarded into a virtual machine on OpenPBS yet",
}
"""Options that OpenPBS refuses, or that no VM job can have, and why."""
RESOURCES = {
    "other": "OpenPBS has no such resource",
    "nodes": "in OpenPBS that is -l select=2:ncpus=8, whose chunks tell what each machine gets",
    "ppn": "in OpenPBS that is ncpus of a chunk: -l select=1:ncpus=8",
    "procs": "in OpenPBS that is -l select=8:ncpus=1",
    "prologue": "OpenPBS runs no prologue of a user's",
    "epilogue": "OpenPBS runs no epilogue of a user's",
    RESOURCE: "it is where the request travels: ask with -vm",
}
"""Resources of `-l` that OpenPBS refuses or turns into others, or that are ours, and why."""
ATTRIBUTES = {
    "x": "OpenPBS has no such attribute",
    "sandbox": "a script in a virtual machine starts in its user's home",
}
"""Attributes of `-W` that no VM job can have, and why."""
BEHIND = "options stand before the script, which OpenPBS gives no arguments"
AFTER = "a VM job runs a script, and no program after --: write the call into a script"
OF_WHOLE_JOB = frozenset({"ncpus", "mem", "mpiprocs", "ompthreads"})
"""Resources that no job with a `select` may ask for beside it."""


def command_path(qsub: str) -> str:
    """Return the path of qsub, which is what the site says."""
    return qsub


def read_call(argv: t.Sequence[str], environment: t.Mapping[str, str]) -> Call:
    """Read a call as qsub does; see `FrontAdapter.read_call`.

    Args:
        argv: the arguments.
        environment: PBS_DPREFIX says how directives begin.

    Raises:
        UserFault: a long word is neither ours nor qsub's, or the value of an option is missing.
    """
    return Call(qsub_arguments.read(argv), environment.get("PBS_DPREFIX"))


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call of vsub.

    Attributes:
        arguments: qsub's, and ours.
        prefix: what the environment says for the beginning of directives; None: nothing.
    """

    arguments: Arguments
    prefix: str | None = None

    @property
    def own(self) -> t.Mapping[str, str | None]:
        """The words of vsub's own, and their values."""
        return self.arguments.own

    @property
    def question(self) -> bool:
        """False: `--version` is ours, and qsub has no other question."""
        return False

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments without those of vsub itself."""
        return self.arguments.argv

    def read_script(self, read_input: t.Callable[[], bytes]) -> Job:
        """Read the script with its directives; see `SubmitCall.read_script`.

        Args:
            read_input: for a script on standard input.

        Raises:
            UserFault: there is no such file, it cannot be read, or a directive lacks a value.
        """
        option = self.arguments.last("C")
        own = qsub_arguments.PREFIX if self.prefix is None else os.fsencode(self.prefix)
        prefix = own if option is None else os.fsencode(option)
        operand = self.arguments.operands[0] if self.arguments.operands else "-"
        if operand not in ("-", ""):
            return Job(self.arguments, qsub_arguments.read_script(read_script_file(operand), operand, prefix))
        if self.arguments.last("I") is not None or self.arguments.program is not None:
            return Job(self.arguments, qsub_arguments.read_script(b"", "", prefix))
        return Job(self.arguments, qsub_arguments.read_script(read_input(), "standard input", prefix), piped=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A call of vsub and its script together.

    Attributes:
        arguments: of the call.
        script: with its directives.
        piped: whether the script came on standard input.
    """

    arguments: Arguments
    script: Script
    piped: bool = False

    @property
    def layers(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The texts of `-vm`, those of the script before those of the command line."""
        lines = tuple((text, self.script.place(number)) for text, number in self.script.vm)
        return lines, tuple((text, COMMAND_LINE) for text in self.arguments.vm)

    @property
    def vm_lines(self) -> tuple[int, ...]:
        """Numbers of the script's lines that ask for a virtual machine."""
        return tuple(sorted({number for _text, number in self.script.vm}))

    def _parts(self) -> t.Iterator[tuple[Arguments, str]]:
        """The call, then directives from the last one on: the first that says something counts."""
        yield self.arguments, COMMAND_LINE
        for arguments, number in reversed(self.script.directives):
            yield arguments, self.script.place(number)

    def _last(self, letter: str) -> tuple[str, str] | None:
        return next(((found, at) for part, at in self._parts() if (found := part.last(letter)) is not None), None)

    def _resource(self, name: str) -> str | None:
        return next((found for part, _at in self._parts() if (found := part.named("l").get(name)) is not None), None)

    @property
    def shell(self) -> tuple[str, str] | None:
        """What `-S` says, and where."""
        return self._last("S")

    @property
    def interactive(self) -> bool:
        """Whether `-I` stands anywhere."""
        return self._last("I") is not None

    @property
    def directory(self) -> tuple[str, str] | None:
        """None: a job starts in its user's home."""
        return None

    @property
    def queue(self) -> str:
        """Return "": a queue may lead to any node."""
        return ""

    @property
    def hosts(self) -> int | None:
        """How many hosts the job gets; None: OpenPBS decides, as several chunks may share one."""
        chunks = qsub_arguments.read_select(self._resource("select") or "1")
        count = sum(chunk.count for chunk in chunks or ())
        return count if count == 1 or "scatter" in (self._resource("place") or "").split(":") else None

    @property
    def source(self) -> tuple[bytes, str]:
        """The script, and how messages call it."""
        return self.script.data, self.script.name

    @property
    def warning(self) -> str:
        """Return "": qsub says itself what it does not take."""
        return ""

    def objections(self, places: object) -> t.Iterator[KeyFault]:
        """Options of qsub that no VM job can have, or that OpenPBS has no more.

        Args:
            places: not looked at: a job starts in its user's home.
        """
        for part, at in self._parts():
            for letter, _value in part.given:
                if letter in REFUSED:
                    yield KeyFault(f"-{letter}", "", REFUSED[letter], at)
            for option, refused in (("l", RESOURCES), ("W", ATTRIBUTES)):
                for name, value in part.named(option).items():
                    if name in refused:
                        yield KeyFault(f"-{option} {name}", format_value(value), refused[name], at)
        if self.arguments.program is not None:
            yield KeyFault("--", "", AFTER, COMMAND_LINE)
        if len(self.arguments.operands) > 1:
            yield KeyFault(format_value(self.arguments.operands[1]), "", BEHIND, COMMAND_LINE)

    def object_to_sizes(self, known: t.Sequence[NodeSize]) -> t.Iterator[KeyFault]:
        """Chunks that no node can give, which qsub would let wait for ever."""
        chunks = qsub_arguments.read_select(self._resource("select") or "") or ()
        for chunk in chunks if known else ():
            cores, memory = _count(chunk.value("ncpus")), parse_batch_memory(chunk.value("mem")) or 0
            if not any(node.cores >= cores and (not node.mem_mib or node.mem_mib >= memory) for node in known):
                yield KeyFault(
                    "-l select", format_value(str(chunk)), "is more than any node has that may have machines"
                )

    def as_it_is(self) -> CommandCall:
        """Return what qsub gets of a job without virtual machines."""
        return self._command_call(self.arguments.argv, None)

    def submission(self, request: Request, need: Demand, policy: Policy) -> tuple[CommandCall, tuple[str, ...]]:
        """Return what qsub gets, and what was raised; the request is in the site's resource; see `FrontJob.submission`.

        Raises:
            UserFault: the request does not fit.
        """
        wire = request.encode()
        options = tuple(one for one in map(_without_shell, self.arguments.options) if one.argv)
        asked = {name for part, _at in self._parts() for name in part.named("l")}
        ours = {RESOURCE: wire}
        notices: list[str] = []
        if "select" in asked or not OF_WHOLE_JOB & asked:
            before = self._resource("select")
            select = _raised(before, need, policy, notices)
            if select != before:
                options = tuple(one for one in (_without_resource(one, "select") for one in options) if one.argv)
                ours["select"] = select
        if policy.pbs_exclusive_node_alloc and "place" not in asked:
            ours["place"] = "excl" if self.hosts == 1 else "scatter:excl"
        argv = tuple(word for name, value in ours.items() for word in ("-l", f"{name}={value}"))
        arguments = dataclasses.replace(self.arguments, options=options)
        neutral = self.script.neutral if self.script.neutral != self.script.data else None
        return self._command_call((*argv, *arguments.argv), neutral), tuple(notices)

    def _command_call(self, argv: tuple[str, ...], neutral: bytes | None) -> CommandCall:
        name = self.script.name
        note = "" if neutral is None else f"without the -vm of line {', '.join(map(str, self.vm_lines))}"
        if self.piped:
            return CommandCall(argv, self.script.data if neutral is None else neutral, -1, name, note)
        at = len(argv) - len(self.arguments.operands) if self.arguments.operands else -1
        return CommandCall(argv, neutral, at, name, note)


def _count(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) else 0


def _raised(select: str | None, need: Demand, policy: Policy, notices: list[str]) -> str:
    """The chunks of a job, each with what a machine needs and on nodes that have machines."""
    chunks = qsub_arguments.read_select(select) if select is not None else (Chunk(1, ()),)
    if chunks is None:
        return select or ""  # qsub will say so
    found: list[str] = []
    for chunk in chunks:
        put = chunk
        if _count(chunk.value("ncpus")) < need.cores:
            put = put.put("ncpus", str(need.cores))
            put = put if select is not None else put.put("mpiprocs", str(need.cores))
        if (parse_batch_memory(chunk.value("mem")) or 0) < need.mem_mib:
            put = put.put("mem", f"{need.mem_mib}mb")
        if select is not None and put != chunk:
            notices.append(f"chunk {chunk} is too small for its guest, and becomes {put}")
        if policy.vm_node_property is not None and not put.value(policy.vm_node_property):
            put = put.put(policy.vm_node_property, "True")
        found.append(str(put))
    return "+".join(found)


def _without_shell(option: qsub_arguments.Option) -> qsub_arguments.Option:
    """A word without `-S` and its value; flags that share it stay."""
    if not option.given or option.given[-1][0] != "S":
        return option
    flags = option.given[:-1]
    word = "".join(letter for letter, _value in flags)
    return qsub_arguments.Option((f"-{word}",) if word else (), flags)


def _without_resource(option: qsub_arguments.Option, name: str) -> qsub_arguments.Option:
    """A word without a resource of its `-l`; flags that share it stay."""
    if not option.given or option.given[-1][0] != "l":
        return option
    pairs = [(one, value) for one, value in qsub_arguments.assignments(option.given[-1][1]) if one != name]
    if len(pairs) == len(qsub_arguments.assignments(option.given[-1][1])):
        return option
    text = ",".join(f'{one}="{value}"' if "," in value else f"{one}={value}" for one, value in pairs)
    flags = option.given[:-1]
    word = "-" + "".join(letter for letter, _value in flags)
    return qsub_arguments.Option(
        ((f"{word}l", text) if text else (word,) if flags else ()), (*flags, *((("l", text),) if text else ()))
    )
