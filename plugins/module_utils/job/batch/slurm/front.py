# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands before sbatch: its arguments and its script are read, our options are taken out, and ours put in.

Everything but `-vm` is sbatch's, and goes to it as it is, but what no VM job can have.  Where the script stands follows
from the options that take a value in the next word (sbatch 22.05; an option that is not known takes one, as most do).
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing as t

from ....errors import UserFault
from ...request.request import Request, RequestErrors, parse
from ...request.value_types import KeyFault, shown
from . import comment, job_shell, sbatch_options

COMMAND_LINE = "command line"
VM = ("-vm", "--vm")
ASKED = frozenset({"help", "usage", "version"})
"""Questions to sbatch, which submits nothing for them."""
PROCESSORS = frozenset(
    {"ntasks", "cpus-per-task", "ntasks-per-node", "tasks-per-node", "ntasks-per-core", "ntasks-per-socket"}
)
MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
OF_SALLOC = frozenset({"bell", "no-bell", "no-shell", "immediate", "I", "kill-command", "K"})
"""Options of salloc that sbatch has not: none takes the next word for its value."""
SCRIPT_NAMES = {"stdin": "sbatch", "wrap": "wrap"}
"""By which sbatch calls a job without a file."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call of vsbatch.

    Attributes:
        options: sbatch's, word by word, without ours and without `--wrap`.
        vm: the texts of our options.
        given: values of sbatch's options by their long names.
        wrap: the command of `--wrap`; None: there is none.
        operands: the script's path and its arguments.
    """

    options: tuple[str, ...]
    vm: tuple[str, ...]
    given: t.Mapping[str, str]
    wrap: str | None
    operands: tuple[str, ...]


def read(argv: t.Sequence[str], flags: t.Collection[str] = ()) -> Call:
    """Read the arguments.

    Args:
        argv: without the program's name.
        flags: options without a value that sbatch has not (`OF_SALLOC`).

    Raises:
        UserFault: a value of one of our options is missing, or there are several components of a job.
    """
    words = list(argv)
    options: list[str] = []
    vm: list[str] = []
    given: dict[str, str] = {}
    while words and words[0].startswith("-") and words[0] != "-":
        if words[0] == "--":
            words.pop(0)
            break
        name, equals, value = words[0].partition("=")
        if name in VM:
            words.pop(0)
            vm.append(value if equals else _next(words, name))
            continue
        if name.lstrip("-") in flags:
            given[name.lstrip("-")] = value
            options.append(words.pop(0))
            continue
        found, taken = sbatch_options.take(words)
        if "wrap" in found and len(taken) == 1 and "=" not in taken[0]:
            raise _without_value("--wrap")
        given |= found
        options += () if "wrap" in found else taken
    if words[:1] == [":"]:
        raise UserFault("an argument ':'", HET_JOB)
    wrap = given.pop("wrap", None)
    return Call(tuple(options), tuple(vm), given, wrap, tuple(words))


def _next(words: list[str], name: str) -> str:
    if not words:
        raise _without_value(name)
    return words.pop(0)


def _without_value(name: str) -> UserFault:
    return UserFault(name, "its value is missing", "see vsbatch --help")


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """A script as its user wrote it.

    Attributes:
        data: all of it.
        name: for people, and the job's name where none is given.
        vm: texts of its `#VM` lines, each with the number of its line.
        given: values of the options in its `#SBATCH` lines, by their long names.
        het: the numbers of lines that begin another component of the job.
    """

    data: bytes
    name: str
    vm: tuple[tuple[str, int], ...] = ()
    given: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    het: tuple[int, ...] = ()


def read_script(data: bytes, name: str) -> Script:
    """Read a script's directives: they stand before its first command, as for sbatch.

    Args:
        data: of the script.
        name: of its file.

    Raises:
        UserFault: it does not begin with an interpreter line, without which sbatch takes no script.
    """
    if not data.startswith(b"#!"):
        raise UserFault(f"the script {name}", "does not begin with #! and the path of an interpreter", "#!/bin/sh")
    vm: list[tuple[str, int]] = []
    given: dict[str, str] = {}
    het: list[int] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip() and not line.startswith(b"#"):
            break
        if found := re.match(rb"#VM[ \t]+(.*)", line):
            vm.append((found[1].decode(errors="replace").strip(), number))
        elif found := re.match(rb"#SBATCH[ \t]+(.*)", line):
            text = found[1].decode(errors="replace")
            het += [number] if HET_LINES.intersection(text.split()[:1]) else []
            given |= _of_line(text)
    return Script(data, name, tuple(vm), given, tuple(het))


def _of_line(text: str) -> dict[str, str]:
    """The options in a `#SBATCH` line, whose words are quoted as for a shell."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # sbatch will say so
        words = text.split()
    given: dict[str, str] = {}
    while words:
        if words[0].startswith("-") and len(words[0]) > 1:
            given |= sbatch_options.take(words)[0]
        else:
            words.pop(0)
    return given


def given(call: Call, script: Script, environment: t.Mapping[str, str]) -> dict[str, str]:
    """Return the values of sbatch's options by their long names, as it takes them: its own call's count most.

    Args:
        call: of vsbatch.
        script: its `#SBATCH` lines.
        environment: of the user.
    """
    return {**script.given, **sbatch_options.of_environment(environment), **call.given}


REFUSED = {
    "comment": "it is where the request travels: a VM job has no other comment",
    "x11": "it forwards a display to steps of srun alone, which no guest has",
    "input": "the standard input of a script in a virtual machine is empty: let the script open the file",
    "batch": "it may run the script on another than the first node, whose machine is the one for the script",
}
"""Options of sbatch that no VM job can have, or not yet."""
HET_JOB = "a heterogeneous job: only one component of a job can be in virtual machines so far; leave the others out"
HET_LINES = frozenset({"hetjob", "packjob"})
"""First words of `#SBATCH` lines between the components of such a job; a `:` does the same among arguments."""


def request_of(call: Call, script: Script, options: t.Collection[str]) -> tuple[Request, list[KeyFault]]:
    """What the user asks for, the command line over the script, and what is wrong with it.

    Args:
        call: of vsbatch.
        script: with its `#VM` lines.
        options: long names of sbatch's options that are given (`given`).
    """
    merged = Request()
    faults: list[KeyFault] = []
    lines = [(text, f"{script.name}, line {number}") for text, number in script.vm]
    for texts in (lines, [(text, COMMAND_LINE) for text in call.vm]):
        try:
            part = parse(texts)
        except RequestErrors as errors:
            part = errors.good
            faults += errors.faults
        merged = part.merged_over(merged)
    faults += [KeyFault(f"--{name}", "", why) for name, why in REFUSED.items() if name in options]
    if script.het:
        faults.append(KeyFault("#SBATCH hetjob", "", HET_JOB, f"{script.name}, line {script.het[0]}"))
    return merged, faults


def with_interpreter(script: Script, program: str) -> bytes:
    """The script as Slurm gets it: our interpreter line, and the user's own as the second one.

    Args:
        script: the user's.
        program: path of the job's shell on nodes.
    """
    return f"#!{program}\n".encode() + script.data


def interactive_step(program: str, command: t.Sequence[str], *, terminal: bool) -> list[str]:
    """Return the arguments of the srun by which salloc starts a session on a job's first node, as it does itself.

    Args:
        program: path of the job's shell on nodes.
        command: for the guest; empty: a shell.
        terminal: is there one?
    """
    step = ["--interactive", "--preserve-env", "--mpi=none", "-n1", "-N1", *(["--pty"] if terminal else []), program]
    return [*step, job_shell.COMMAND, *command] if command else step


def sizes(options: t.Collection[str], cores: int, mem_mib: int) -> tuple[str, ...]:
    """The options by which a job that asks for no processors, or no memory, gets what its guests need.

    Args:
        options: long names of sbatch's options that are given (`given`).
        cores: that a node must give.
        mem_mib: the same of memory.
    """
    processors = () if PROCESSORS.intersection(options) else (f"--cpus-per-task={cores}",)
    return (*processors, *(() if MEMORY.intersection(options) else (f"--mem={mem_mib}M",)))


def comment_of(wire: bytes) -> str:
    """The option that carries a request.

    Args:
        wire: the request's JSON.

    Raises:
        UserFault: it does not fit.
    """
    return f"--comment={comment.pack(wire)}"


def missing(path: str, why: str) -> UserFault:
    """The fault of a script that cannot be read."""
    return UserFault(f"the script {shown(path)}", why)
