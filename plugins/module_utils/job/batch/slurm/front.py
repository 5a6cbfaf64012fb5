# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands before sbatch: its arguments and its script are read, our options are taken out, and ours put in.

Everything but `-vm` is sbatch's, and goes to it as it is.  Only what decides where the script stands is known here:
which options take a value in the next word (sbatch(1) of 22.05; an option that is not known takes one, as most do).
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ....errors import UserFault
from ...request.request import Request, RequestErrors, parse
from ...request.value_types import KeyFault, shown
from . import comment

COMMAND_LINE = "command line"
VM = ("-vm", "--vm")
SHORT_FLAGS = frozenset("HhIkOQsVvW")
"""Letters of options without a value, or with one that can only stand in the same word."""
FLAGS = frozenset(
    {
        "contiguous",
        "exclusive",
        "get-user-env",
        "help",
        "hold",
        "ignore-pbs",
        "nice",
        "no-kill",
        "no-requeue",
        "overcommit",
        "oversubscribe",
        "parsable",
        "propagate",
        "quiet",
        "reboot",
        "requeue",
        "share",
        "spread-job",
        "test-only",
        "usage",
        "use-min-nodes",
        "verbose",
        "version",
        "wait",
    }
)
"""The same by their long names."""
LONG = {
    "J": "job-name",
    "n": "ntasks",
    "c": "cpus-per-task",
    "N": "nodes",
    "h": "help",
    "V": "version",
    "I": "immediate",
    "D": "chdir",
    "C": "constraint",
}
"""Long names of the letters that matter here."""
ASKED = frozenset({"help", "usage", "version"})
"""Questions to sbatch, which submits nothing for them."""
PROCESSORS = frozenset({"ntasks", "cpus-per-task", "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket"})
MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
SCRIPT_NAMES = {"stdin": "sbatch", "wrap": "wrap"}
"""By which sbatch calls a job without a file."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call of vsbatch.

    Attributes:
        options: sbatch's, word by word, without ours and without `--wrap`.
        vm: the texts of our options.
        names: long names of sbatch's options that were given.
        wrap: the command of `--wrap`; None: there is none.
        operands: the script's path and its arguments.
    """

    options: tuple[str, ...]
    vm: tuple[str, ...]
    names: frozenset[str]
    wrap: str | None
    operands: tuple[str, ...]


def read(argv: t.Sequence[str]) -> Call:
    """Read the arguments.

    Args:
        argv: without the program's name.

    Raises:
        UserFault: a value of one of our options is missing.
    """
    words = list(argv)
    options: list[str] = []
    vm: list[str] = []
    names: set[str] = set()
    wrap: str | None = None
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in VM:
            vm.append(value if equals else _next(words, name))
            continue
        if name == "--wrap":
            wrap = value if equals else _next(words, name)
            continue
        options.append(word)
        given, takes = _of_word(word)
        names |= given
        if takes and words:
            options.append(words.pop(0))
    return Call(tuple(options), tuple(vm), frozenset(names), wrap, tuple(words))


def _next(words: list[str], name: str) -> str:
    if not words:
        raise UserFault(name, "its value is missing", "see vsbatch --help")
    return words.pop(0)


def _of_word(word: str) -> tuple[set[str], bool]:
    """The long names of the options in a word, and whether the next word is the value of the last one."""
    if word.startswith("--"):
        name, equals, _value = word[2:].partition("=")
        return {name}, not equals and name not in FLAGS
    found = set()
    for place, letter in enumerate(word[1:], 2):
        found.add(LONG.get(letter, letter))
        if letter not in SHORT_FLAGS:
            return found, place == len(word)
    return found, False


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """A script as its user wrote it.

    Attributes:
        data: all of it.
        name: for people, and the job's name where none is given.
        vm: texts of its `#VM` lines, each with the number of its line.
        names: long names of the options in its `#SBATCH` lines.
    """

    data: bytes
    name: str
    vm: tuple[tuple[str, int], ...] = ()
    names: frozenset[str] = frozenset()


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
    names: set[str] = set()
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip() and not line.startswith(b"#"):
            break
        if found := re.match(rb"#VM[ \t]+(.*)", line):
            vm.append((found[1].decode(errors="replace").strip(), number))
        elif found := re.match(rb"#SBATCH[ \t]+(.*)", line):
            for word in found[1].decode(errors="replace").split():
                if word.startswith("#"):
                    break
                if word.startswith("-") and len(word) > 1:
                    names |= _of_word(word)[0]
    return Script(data, name, tuple(vm), frozenset(names))


def request_of(call: Call, script: Script) -> tuple[Request, list[KeyFault]]:
    """What the user asks for, the command line over the script, and what is wrong with it."""
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
    if "comment" in call.names | script.names:
        faults.append(KeyFault("--comment", "", "it is where the request travels: a VM job has no other comment"))
    if "x11" in call.names | script.names:
        faults.append(KeyFault("--x11", "", "it forwards a display to steps of srun alone, which no guest has"))
    return merged, faults


def with_interpreter(script: Script, program: str) -> bytes:
    """The script as Slurm gets it: our interpreter line, and the user's own as the second one.

    Args:
        script: the user's.
        program: path of the job's shell on nodes.
    """
    return f"#!{program}\n".encode() + script.data


def sizes(call: Call, script: Script, cores: int, mem_mib: int) -> tuple[str, ...]:
    """The options by which a job that asks for no processors, or no memory, gets what its guests need.

    Args:
        call: of vsbatch.
        script: its `#SBATCH` lines count.
        cores: that a node must give.
        mem_mib: the same of memory.
    """
    given = call.names | script.names
    processors = () if given & PROCESSORS else (f"--cpus-per-task={cores}",)
    return (*processors, *(() if given & MEMORY else (f"--mem={mem_mib}M",)))


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
