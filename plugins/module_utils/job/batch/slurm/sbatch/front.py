# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands before sbatch: its arguments and its script are read, our options are taken out, and ours put in.

Everything but `-vm` is sbatch's, and goes to it as it is, but what no VM job can have.  Where the script stands follows
from the options that take a value in the next word (sbatch 22.05; an option that is not known takes one, as most do).
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import typing as t

from .....errors import UserFault
from ....request.command_call import COMMAND_LINE, CommandCall, read_script_file
from ....request.value_types import KeyFault, format_value
from .. import comment, host_list
from . import node_sizes, own_user
from . import options as sbatch_options
from .batch_script import Script, read_script

if t.TYPE_CHECKING:
    from ....config.parameters import Policy
    from ....request.demand import Demand, NodeSize
    from ....request.request import Request
    from ...contract import GuestPlaces

PROGRAM = "vsbatch"
COMMAND = "sbatch"
USAGE = """\
usage: vsbatch [options of sbatch] [-vm key=value[,key=value...]]... [script [arguments]]

Submits a job as sbatch does; its script runs in a virtual machine made for it.  Everything but -vm is sbatch's.

  vsbatch job.sh                                   in the site's default machine
  vsbatch -vm img=debian12,vcpus=6,ram=8G job.sh   in this one
  vsbatch -N2 -t 2:00:00 job.sh                    with sbatch's own options: a machine on each of two nodes
  vsbatch --dry-run -vm vcpus=6 job.sh             shows what would be submitted, and why

In a script, before its first command:

  #VM img=debian12,vcpus=6

The command line wins over the script, the script over the site's defaults.  A job that asks for no processors or
no memory asks for what its machines need.
"""
VM = ("-vm", "--vm")
ASKED = frozenset({"help", "usage", "version"})
"""Questions to sbatch, which submits nothing for them."""
PROCESSORS = frozenset(
    {"ntasks", "cpus-per-task", "ntasks-per-node", "tasks-per-node", "ntasks-per-core", "ntasks-per-socket"}
)
MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
SCRIPT_NAMES = {"stdin": "sbatch", "wrap": "wrap"}
"""By which sbatch calls a job without a file."""


def command_path(qsub: str) -> str:
    """Return the path of sbatch, which is beside where qsub would be."""
    return f"{qsub.rpartition('/')[0]}/{COMMAND}"


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call of vsbatch.

    Attributes:
        options: sbatch's, word by word, without ours and without `--wrap`.
        vm: the texts of our options.
        given: values of sbatch's options by their long names.
        wrap: the command of `--wrap`; None: there is none.
        operands: the script's path and its arguments.
        own: our other words, and their values.
        variables: of the user's environment.
    """

    options: tuple[str, ...]
    vm: tuple[str, ...]
    given: t.Mapping[str, str]
    wrap: str | None
    operands: tuple[str, ...]
    own: t.Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    variables: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def question(self) -> bool:
        """Whether sbatch speaks about itself."""
        return bool(ASKED.intersection(self.given))

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments without those of vsbatch itself."""
        wrap = () if self.wrap is None else (f"--wrap={self.wrap}",)
        return (*self.options, *wrap, *self.operands)

    def read_script(self, read_input: t.Callable[[], bytes]) -> Job:
        """Read the script: of `--wrap`, of a file, or of standard input, as sbatch takes them.

        Args:
            read_input: for a script on standard input.

        Raises:
            UserFault: there is none, or it is none for sbatch.
        """
        if self.wrap is not None:
            if self.operands:
                raise UserFault("--wrap", "goes with no script", "leave one of the two out")
            text = f"#!/bin/sh\n# This script was created by vsbatch --wrap.\n\n{self.wrap}\n"
            return Job(self, read_script(text.encode(), SCRIPT_NAMES["wrap"]))
        if not self.operands:
            return Job(self, read_script(read_input(), SCRIPT_NAMES["stdin"], "the script on standard input"))
        path = self.operands[0]
        return Job(self, read_script(read_script_file(path), pathlib.Path(path).name))


def read_call(argv: t.Sequence[str], environment: t.Mapping[str, str], flags: t.Collection[str] = ()) -> Call:
    """Read the arguments.

    Args:
        argv: without the program's name.
        environment: of the user.
        flags: options without a value that sbatch has not.

    Raises:
        UserFault: a value of one of our options is missing, or there are several components of a job.
    """
    rest = list(argv)
    options: list[str] = []
    vm: list[str] = []
    given: dict[str, str] = {}
    own: dict[str, str | None] = {}
    while rest and rest[0].startswith("-") and rest[0] != "-":
        if rest[0] == "--":
            rest.pop(0)
            break
        name, equals, value = rest[0].partition("=")
        if name in VM:
            rest.pop(0)
            vm.append(value if equals else _next(rest, name))
            continue
        if rest[0] in sbatch_options.OWN or name == sbatch_options.QUERY:
            rest.pop(0)
            own[name] = value if equals else (rest.pop(0) if name == sbatch_options.QUERY and rest else None)
            continue
        if name.lstrip("-") in flags:
            given[name.lstrip("-")] = value
            options.append(rest.pop(0))
            continue
        found, taken = sbatch_options.take(rest)
        if "wrap" in found and len(taken) == 1 and "=" not in taken[0]:
            raise _without_value("--wrap")
        given |= found
        options += () if "wrap" in found else taken
    if rest[:1] == [":"]:
        raise UserFault("an argument ':'", HET_JOB)
    own |= {"--help": None} if "help" in given else {}
    wrap = given.pop("wrap", None)
    return Call(tuple(options), tuple(vm), given, wrap, tuple(rest), own, environment)


def _next(rest: list[str], name: str) -> str:
    if not rest:
        raise _without_value(name)
    return rest.pop(0)


def _without_value(name: str) -> UserFault:
    return UserFault(name, "its value is missing", "see vsbatch --help")


def read_option_values(
    call: Call, script: Script, environment: t.Mapping[str, str], command: str = COMMAND
) -> dict[str, str]:
    """Return the values of sbatch's options by their long names, as it takes them: its own call's count most.

    Args:
        call: of vsbatch.
        script: its `#SBATCH` lines.
        environment: of the user.
        command: whose variables count there.
    """
    return {**script.given, **sbatch_options.of_environment(environment, command), **call.given}


REFUSED = {
    "comment": "it is where the request travels: a VM job has no other comment",
    "x11": "it forwards a display to steps of srun alone, which no guest has",
    "input": "the standard input of a script in a virtual machine is empty: let the script open the file",
    "batch": "it may run the script on another than the first node, whose machine is the one for the script",
}
"""Options of sbatch that no VM job can have, or not yet."""
OF_EVERY_GUEST = ("/", "/tmp")  # noqa: S108 - where a job may start
NO_DEVICES = "devices of GRES reach no guest by themselves: add -vm pci=CLASS:N, or leave them out"
HET_JOB = "a heterogeneous job: only one component of a job can be in virtual machines so far; leave the others out"


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A call of vsbatch and its script together."""

    call: Call
    script: Script
    command: t.ClassVar[str] = COMMAND

    @property
    def options(self) -> dict[str, str]:
        """The options of sbatch, as it takes them."""
        return read_option_values(self.call, self.script, self.call.variables, self.command)

    @property
    def layers(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The texts of `#VM` lines, and those of the command line."""
        lines = tuple((text, f"{self.script.name}, line {number}") for text, number in self.script.vm)
        return lines, tuple((text, COMMAND_LINE) for text in self.call.vm)

    @property
    def vm_lines(self) -> tuple[int, ...]:
        """Numbers of the `#VM` lines."""
        return tuple(number for _text, number in self.script.vm)

    @property
    def shell(self) -> None:
        """None: the script names its interpreter."""

    @property
    def interactive(self) -> bool:
        """False: sbatch has no terminal."""
        return False

    @property
    def directory(self) -> tuple[str, str] | None:
        """None: sbatch starts a job where it is called, and the guest itself says where it has no such directory."""
        return None

    @property
    def queue(self) -> str:
        """The partitions, joined by commas; "": the default one."""
        return self.options.get("partition", "")

    @property
    def hosts(self) -> int | None:
        """None: Slurm decides, by tasks and sizes."""
        return None

    @property
    def source(self) -> tuple[bytes, str]:
        """The script, and how messages call it."""
        return self.script.data, self.script.name

    @property
    def warning(self) -> str:
        """Return "": sbatch says itself what it does not take."""
        return ""

    def objections(self, places: GuestPlaces) -> t.Iterator[KeyFault]:
        """Options of sbatch that no VM job can have, or not yet."""
        options = self.options
        yield from (KeyFault(f"--{name}", "", why) for name, why in REFUSED.items() if name in options)
        asked = {name: options[name] for name in sbatch_options.OF_DEVICES if name in options}
        if devices := host_list.devices_of(options.get("gres", "")):
            asked["gres"] = devices
        if not places.devices:
            yield from (KeyFault(f"--{name}", value, NO_DEVICES) for name, value in asked.items())
        if "chdir" in options:
            yield from object_to_directory(options["chdir"], places)
        if user := own_user.unreadable_name():
            yield KeyFault("user", user, own_user.WHY)
        if self.script.het:
            yield KeyFault("#SBATCH hetjob", "", HET_JOB, f"{self.script.name}, line {self.script.het[0]}")

    def object_to_sizes(self, known: t.Sequence[NodeSize]) -> t.Iterator[KeyFault]:
        """What no partition has, and sbatch would let wait for ever."""
        yield from node_sizes.object_to_sizes(self.options, known)

    def as_it_is(self) -> CommandCall:
        """Return what sbatch gets of a job without virtual machines."""
        piped = self.call.wrap is None and not self.call.operands
        return CommandCall(self.call.argv, self.script.data if piped else None, -1, self.script.name)

    def job_options(self, request: Request, need: Demand, policy: Policy) -> tuple[str, ...]:
        """Return the options of the job: the user's, what its machines need, and the request.

        Raises:
            UserFault: as of `submission`.
        """
        options = self.options
        # behind the user's own, of which the last one counts
        added = (
            *whole_nodes(options, policy),
            *constraint(options, policy.vm_node_property),
            *directory_by_name(options, self.call.variables),
            *(node_sizes.with_spare(options, need.spare) if need.spare else ()),
        )
        return (*sizes(options, need.cores, need.mem_mib), *self.call.options, *added, comment_of(request.to_json()))

    def submission(self, request: Request, need: Demand, policy: Policy) -> tuple[CommandCall, tuple[str, ...]]:
        """Return what sbatch gets; the request goes into the job's comment; see `FrontJob.submission`.

        Raises:
            UserFault: the request does not fit, or the user counts nodes by features, without ours.
        """
        options = self.job_options(request, need, policy)
        path = self.call.operands[0] if self.call.operands else self.script.name
        text = with_interpreter(self.script, f"{policy.prefix_nodes}/bin/vtorque-shell")
        note = "with the job's shell in its first line"
        return CommandCall((*options, path, *self.call.operands[1:]), text, len(options), self.script.name, note), ()


def object_to_directory(named: str, places: GuestPlaces) -> t.Iterator[KeyFault]:
    """Object to a start directory that no guest has; `/tmp` is there in every guest, as its own."""
    path = os.path.abspath(named)  # noqa: PTH100 - sbatch takes a relative one from where it is called
    if path not in OF_EVERY_GUEST and (why := places.objection(path)):
        yield KeyFault("-D", format_value(named), why)


def with_interpreter(script: Script, program: str) -> bytes:
    """The script as Slurm gets it: our interpreter line, and the user's own as the second one.

    Args:
        script: the user's.
        program: path of the job's shell on nodes.
    """
    return f"#!{program}\n".encode() + script.data


def sizes(options: t.Collection[str], cores: int, mem_mib: int) -> tuple[str, ...]:
    """The options by which a job that asks for no processors, or no memory, gets what its guests need.

    Args:
        options: long names of sbatch's options that are given (`read_option_values`).
        cores: that a node must give.
        mem_mib: the same of memory.
    """
    processors = () if PROCESSORS.intersection(options) else (f"--cpus-per-task={cores}",)
    return (*processors, *(() if MEMORY.intersection(options) else (f"--mem={mem_mib}M",)))


def whole_nodes(options: t.Collection[str], policy: Policy) -> tuple[str, ...]:
    """Return the option by which a job has its nodes alone, where the site wants that and the user says nothing of it.

    Args:
        options: long names of sbatch's options that are given (`read_option_values`).
        policy: the site's.
    """
    said_otherwise = {"exclusive", "oversubscribe"}.intersection(options)
    return ("--exclusive",) if policy.pbs_exclusive_node_alloc and not said_otherwise else ()


def directory_by_name(options: t.Collection[str], variables: t.Mapping[str, str]) -> tuple[str, ...]:
    """Return the option by which a job starts where it is submitted, under the name by which its user came there.

    sbatch takes the path without links (getcwd(3)), which guests have not where a home or a workspace is a link.

    Args:
        options: long names of sbatch's options that are given (`read_option_values`).
        variables: of the user's environment.
    """
    name = variables.get("PWD", "")
    try:
        other = name.startswith("/") and name != str(pathlib.Path.cwd()) and pathlib.Path(name).samefile(".")
    except (OSError, ValueError):
        return ()
    return (f"--chdir={name}",) if other and "chdir" not in options else ()


def constraint(options: t.Mapping[str, str], feature: str | None) -> tuple[str, ...]:
    """The option by which a job gets nodes for virtual machines, and what its user asks of them too.

    Slurm reads `&` and `|` from left to right (tried on 22.05.8), so that what stands last counts for all before it.

    Args:
        options: of sbatch (`read_option_values`).
        feature: of the nodes that have guests; None: all have.

    Raises:
        UserFault: the user counts nodes by features, where ours would be one more to count.
    """
    theirs = options.get("constraint", "").strip()
    if feature is None:
        return ()
    if "*" in theirs:
        if feature in re.split(r"[^A-Za-z0-9_.-]+", theirs):
            return ()
        why = f"counts nodes, and machines need nodes with the feature {feature}"
        raise UserFault(
            f"--constraint={format_value(theirs)}", why, f"write {feature} into each of its terms: (a&{feature})*2"
        )
    return (f"--constraint={theirs}&{feature}" if theirs else f"--constraint={feature}",)


def comment_of(wire: bytes) -> str:
    """The option that carries a request.

    Args:
        wire: the request's JSON.

    Raises:
        UserFault: it does not fit.
    """
    return f"--comment={comment.pack(wire)}"
