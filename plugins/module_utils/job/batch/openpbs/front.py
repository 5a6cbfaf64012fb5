# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands before OpenPBS's qsub: its arguments and its script are read, our options are taken out, ours put in.

Everything but `-vm` is qsub's, and goes to it as it is, but what no VM job can have.  The request travels in a resource
of the site's (`-l vtorque=...`, type string, flag m).  Nothing here submits: `request.merged_over` and the policy's
checks are those of every batch system.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ....errors import UserFault
from ...request import pbs_directives
from ...request.request import Request, RequestErrors, parse
from ...request.value_types import KeyFault
from .answers import RESOURCE

COMMAND_LINE = "command line"
VM = ("-vm", "--vm")
VALUED = frozenset("aAcCeJjkKlmMNopPqrRSuvW")
"""Letters of options that take a value (qsub(1B) of OpenPBS 23.06); every other letter is a flag (f G h I V X z)."""
OF_TORQUE = frozenset("dDFLtTwi")
"""Those of Torque, which are refused with what to write instead: their values are no scripts."""
MAX_RESOURCE = 16_000
"""Characters of a resource of type string that were carried to the hook (recorded)."""
REFUSED = {
    "d": "OpenPBS has no start directory: let the script begin with cd",
    "D": "OpenPBS has no root directory for a job",
    "F": "OpenPBS takes no arguments for a script: let the script read a variable (-v)",
    "i": "OpenPBS hands a script no standard input",
    "L": "in OpenPBS that is -l select=2:ncpus=8",
    "n": "in OpenPBS that is -l place=excl",
    "t": "in OpenPBS an array is -J FIRST-LAST",
    "T": "OpenPBS has no job types",
    "w": "a script begins in its user's home: let it begin with cd",
    "x": "OpenPBS runs no command on a terminal of a VM job: leave it out",
    "X": "no display is forwarded into a virtual machine on OpenPBS yet",
    "G": "no display is forwarded into a virtual machine on OpenPBS yet",
    "R": "files of a job are in its user's home, which the virtual machine has too",
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
    "block": "",
}
"""Attributes of `-W` that no VM job can have, and why; "": it may."""
BEHIND = "options stand before the script, which OpenPBS gives no arguments"
PROGRAM = "a VM job runs a script, and no program after --: write the call into a script"


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call of vsub, or the words of a directive.

    Attributes:
        options: qsub's, word by word, without ours.
        vm: the texts of our options.
        given: qsub's options and their values, in order; a flag has "".
        operands: the script's path.
        program: what stands after `--`.
    """

    options: tuple[str, ...]
    vm: tuple[str, ...]
    given: tuple[tuple[str, str], ...]
    operands: tuple[str, ...] = ()
    program: tuple[str, ...] = ()

    def last(self, letter: str) -> str | None:
        """The value of the last option of that letter, which is the one that counts for qsub; None without one."""
        found = [value for name, value in self.given if name == letter]
        return found[-1] if found else None

    def resources(self) -> dict[str, str]:
        """What `-l` asks for, by resource; of two values the later one counts."""
        return {name: value for letter, text in self.given if letter == "l" for name, value in _assignments(text)}

    def attributes(self) -> dict[str, str]:
        """What `-W` says, by attribute."""
        return {name: value for letter, text in self.given if letter == "W" for name, value in _assignments(text)}


def read(argv: t.Sequence[str]) -> Call:
    """Read the arguments as getopt(3) does.

    Args:
        argv: without the program's name.

    Raises:
        UserFault: the value of an option is missing.
    """
    words = list(argv)
    options: list[str] = []
    vm: list[str] = []
    given: list[tuple[str, str]] = []
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in VM:
            vm.append(value if equals else _next(words, name))
            continue
        taken = [word]
        for place, letter in enumerate(word[1:], 2) if not word.startswith("--") else ():
            if letter not in VALUED | OF_TORQUE:
                given.append((letter, ""))
                continue
            if not word[place:]:
                taken.append(_next(words, f"-{letter}"))
            given.append((letter, word[place:] or taken[-1]))
            break
        options += taken
    if words[:1] == ["--"]:
        return Call(tuple(options), tuple(vm), tuple(given), program=tuple(words[1:]))
    return Call(tuple(options), tuple(vm), tuple(given), tuple(words))


def _next(words: list[str], name: str) -> str:
    if not words:
        raise UserFault(name, "its value is missing", "see vsub --help")
    return words.pop(0)


def _assignments(text: str) -> list[tuple[str, str]]:
    """The `name=value,...` of one `-l` or `-W`; a value with commas stands in quotes."""
    form = r"""\s*([^=,\s]+)\s*(?:=\s*("[^"]*"|'[^']*'|[^,]*))?(?:,|$)"""
    return [(name, value.strip("\"'")) for name, value in re.findall(form, text)]


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """A script as its user wrote it.

    Attributes:
        data: as qsub gets it: `-vm` of a directive is blank there, which qsub would read as `-v m`.
        name: for people, and the job's name where none is given.
        vm: texts of its `-vm`, each with where it stands.
        calls: its directives, each with where it stands.
    """

    data: bytes
    name: str
    vm: tuple[tuple[str, str], ...] = ()
    calls: tuple[tuple[Call, str], ...] = ()


def read_script(data: bytes, name: str, prefix: bytes = pbs_directives.PREFIX) -> Script:
    """Read a script's `#PBS` lines, and its `#VM` lines, which are comments to qsub.

    Args:
        data: of the script.
        name: of its file.
        prefix: what directives begin with (`-C`).

    Raises:
        UserFault: the value of an option is missing.
    """
    script = pbs_directives.read(data, name, prefix)
    calls = tuple((read([word.text for word in d.words]), script.origin(d)) for d in script.directives)
    lines: list[tuple[str, str]] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip() and not line.startswith(b"#"):
            break
        if found := re.match(rb"#VM[ \t]+(.*)", line):
            lines.append((found[1].decode(errors="replace").strip(), f"{name}, line {number}"))
    vm = [(text, origin) for call, origin in calls for text in call.vm]
    return Script(script.neutral, name, tuple(lines + vm), calls)


def request_of(call: Call, script: Script) -> tuple[Request, list[KeyFault]]:
    """What the user asks for, the command line over the script, and what is wrong with it.

    Args:
        call: of vsub.
        script: with its directives.
    """
    merged = Request()
    faults: list[KeyFault] = []
    for texts in (script.vm, [(text, COMMAND_LINE) for text in call.vm]):
        try:
            part = parse(texts)
        except RequestErrors as errors:
            part = errors.good
            faults += errors.faults
        merged = part.merged_over(merged)
    for one, origin in ((call, COMMAND_LINE), *script.calls):
        faults += [KeyFault(f"-{name}", "", REFUSED[name], origin) for name, _value in one.given if name in REFUSED]
        faults += [KeyFault(f"-l {name}", "", RESOURCES[name], origin) for name in one.resources() if name in RESOURCES]
        faults += [
            KeyFault(f"-W {name}", "", ATTRIBUTES[name], origin) for name in one.attributes() if ATTRIBUTES.get(name)
        ]
    if call.program:
        faults.append(KeyFault("--", "", PROGRAM, COMMAND_LINE))
    if len(call.operands) > 1:
        faults.append(KeyFault(call.operands[1], "", BEHIND, COMMAND_LINE))
    shell = call.last("S") or next((found for one, _origin in reversed(script.calls) if (found := one.last("S"))), "")
    if shell:
        try:
            merged = merged.with_shell(shell)
        except UserFault as error:
            faults.append(KeyFault("-S", "", f"{error.why}: {error.hint}"))
    return merged, faults


def submit_words(
    call: Call, script: Script, request: Request, *, nodes: int, cores: int, mem_mib: int, exclusive: bool
) -> tuple[str, ...]:
    """The words for qsub before the script's path: the user's own, and what the job's machines need besides.

    `-S` goes into the request, since the launch hook puts our shell in its place; a `select` of the user's own is left
    as it is: qsub takes no second one.

    Args:
        call: of vsub.
        script: with its directives.
        request: whole, with the site's defaults.
        nodes: how many machines' nodes are asked for, where the user's own `select` says nothing.
        cores: that each of them must give.
        mem_mib: the same of memory.
        exclusive: has the job its nodes to itself, where the user's own `place` says nothing?

    Raises:
        UserFault: the request is too long for the resource.
    """
    wire = request.encode()
    if len(wire) > MAX_RESOURCE:
        why = f"{len(wire)} characters of at most {MAX_RESOURCE}"
        raise UserFault("the request is too long to travel in the job", why, "use shorter paths")
    asked = {name for one in (call, *(directive for directive, _origin in script.calls)) for name in one.resources()}
    words = ["-l", f"{RESOURCE}={wire}"]
    if not asked & {"select", "ncpus"}:
        words += ["-l", f"select={nodes}:ncpus={cores}:mpiprocs={cores}:mem={mem_mib}mb"]
    if exclusive and "place" not in asked:
        words += ["-l", "place=excl" if nodes == 1 else "place=scatter:excl"]
    return (*words, *_without_shell(call.options))


def _without_shell(options: t.Sequence[str]) -> list[str]:
    """The options without `-S` and its value; flags that share a word stay."""
    kept: list[str] = []
    words = list(options)
    while words:
        word = words.pop(0)
        for place, letter in enumerate(word[1:], 1) if not word.startswith("--") else ():
            if letter not in VALUED:
                continue
            value = [] if word[place + 1 :] else words[:1]
            del words[: len(value)]
            if letter == "S":
                kept += [word[:place]] if place > 1 else []
            else:
                kept += [word, *value]
            break
        else:
            kept.append(word)
    return kept
