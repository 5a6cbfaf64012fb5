# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr config`: the site's configuration, shown, checked, and made out of the original's."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import typing as t

from ....module_utils.errors import SiteFault, UserFault
from ....module_utils.job.config.legacy import NEEDS_A_LOOK, Conversion, convert
from ....module_utils.job.config.parameters import PARAMETERS, RETIRED, Parameter, Policy
from ....module_utils.job.config.policy_file import MAX_FILE, PolicyFile, parse, read
from ..output import messages
from ..output.json_output import add_json, print_json
from ..output.tables import Row, table
from ..output.verbs import add_verb

HELP = "the site's configuration"
PROGRAM = "vmgr"
STDIN = "-"
WRONG = 2
LOOK = 1
SHOW_EPILOG = """\
Sizes are in MiB, times in seconds.  A configuration that is wrong is not shown: vmgr config check names what is wrong.

examples:
  vmgr config show                 every parameter
  vmgr config show bridge timeout  these
  vmgr config show --origin        where each value was set, and what it would be otherwise
  vmgr config show --json          for programs: all of it
  vmgr config show --query "[?from=='set'].name"
"""
CHECK_EPILOG = """\
Without FILE the site's own configuration is checked, with who may have written it.  Another FILE is a draft: anybody
may write it, and anybody may check it.  - is standard input.

exit status:
  0  it is good
  2  it is not; everything that is wrong is named, with its line

examples:
  vmgr config check                after an edit
  vmgr config check new.yml        before it is put in place
"""
CONVERT_EPILOG = """\
OLD is the config.sh of the original.  It is read and never run.  For each of its names it is said what became of it:
mapped; changed or dropped, and why; refused, where today's product cannot take the value: the new file then holds the
default, with a comment.  What is no plain assignment is skipped, and named.

Where the roles write the site's configuration, it is made of the play's variables alone: use --variables there.

exit status:
  0  everything found its place
  1  something was refused or skipped: look at it
  2  OLD cannot be read, or NEW is there already

examples:
  vmgr config convert config.sh                   the new configuration, and on standard error what became of each name
  vmgr config convert config.sh -o vtorque.yml    into a new file
  vmgr config convert config.sh --variables -o group_vars/all/vtorque.yml
                                                  for mikelangelo.vtorque.install
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `vmgr config`."""
    verbs = parser.add_subparsers(dest="verb", required=True)
    show = add_verb(verbs, "show", "every parameter, its value, and whether the site has set it", SHOW_EPILOG)
    show.add_argument("names", metavar="NAME", nargs="*", help="these parameters alone")
    show.add_argument("--origin", action="store_true", help="where each was set, and its default")
    add_json(show)
    check = add_verb(verbs, "check", "name everything that is wrong with a configuration", CHECK_EPILOG)
    check.add_argument("file", metavar="FILE", nargs="?", help="a draft (the site's own configuration)")
    old = add_verb(verbs, "convert", "make a configuration out of the original's config.sh", CONVERT_EPILOG)
    old.add_argument("old", metavar="OLD", help="the original's config.sh")
    old.add_argument("--variables", action="store_true", help="variables of the roles (vtorque_...), for group_vars")
    old.add_argument("-o", "--output", metavar="NEW", help="the new file, which must not be there yet")


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Do what was asked for.

    Args:
        call: the arguments; `config` is the path of the site's configuration.
        load: not used: lines are wanted, too.

    Returns:
        The exit status.

    Raises:
        SiteFault: the configuration that is to be shown is wrong.
        UserFault: there is no such parameter, or a file of the user's cannot be read or written.
    """
    if call.verb == "check":
        return _check(call.file, call.config)
    if call.verb == "convert":
        return _convert(call.old, call.output, variables=call.variables)
    return _print_policy(call)


def _print_policy(call: argparse.Namespace) -> int:
    unknown = [name for name in call.names if name not in PARAMETERS]
    for name in RETIRED.keys() & set(unknown):
        raise UserFault(name, f"is no parameter any more: {RETIRED[name]}")
    if unknown:
        raise UserFault(", ".join(unknown), "no such parameter", "vmgr config show names all")
    found = read(call.config)
    rows = [_row(PARAMETERS[name], found) for name in (call.names or PARAMETERS)]
    if call.json:
        print_json(call, rows)
        return 0
    columns = ["name", "value", "from", "meaning"]
    if call.origin:
        columns = ["name", "value", "from", "line", "default", "meaning"]
    table([{column: row[column] for column in columns} for row in rows])
    return 0


def _row(parameter: Parameter, found: PolicyFile) -> Row:
    line = found.lines.get(parameter.name)
    return {
        "name": parameter.name,
        "value": getattr(found.policy, parameter.name),
        "from": "default" if line is None else "set",
        "line": line,
        "default": parameter.default,
        "meaning": parameter.meaning,
    }


def _check(file: str | None, site: pathlib.Path) -> int:
    own = file is None or (file != STDIN and pathlib.Path(file).absolute() == site.absolute())
    try:
        if file == STDIN:
            found = parse(_standard_input(), "on standard input")
        else:
            found = read(site) if own or file is None else read(pathlib.Path(file), owner_uid=None)
    except SiteFault as error:
        print(messages.text(PROGRAM, error), file=sys.stderr)
        return WRONG
    draft = "" if own else "; a draft: who may have written it was not looked at"
    for name, line in found.retired.items():
        print(f"{PROGRAM}: line {line}: {name} has no effect any more, remove it: {RETIRED[name]}", file=sys.stderr)
    set_here = len(found.lines.keys() & PARAMETERS.keys())
    print(f"{site if own else file}: good, {set_here} of {len(PARAMETERS)} parameters are set{draft}")
    return 0


def _convert(old: str, new: str | None, *, variables: bool) -> int:
    text = _standard_input() if old == STDIN else _read(pathlib.Path(old))
    done = convert(text, pathlib.Path(old).name if old != STDIN else "standard input")
    made = done.variables if variables else done.text
    if new is None:
        sys.stdout.write(made)
    else:
        _write(pathlib.Path(new), made)
    # with the new file on standard output, what became of the names is no part of it
    _print_entries(done, sys.stderr if new is None else sys.stdout)
    return LOOK if done.needs_review else 0


def _print_entries(done: Conversion, stream: t.TextIO) -> None:
    width = max((len(word.name) for word in done.entries), default=0)
    for word in done.entries:
        print(f"line {word.line:<4} {word.fate:<8} {word.name:<{min(width, 32)}} {word.text}", file=stream)
    looks = sum(word.fate in NEEDS_A_LOOK for word in done.entries)
    print(f"{len(done.entries)} names and lines, {looks} of them need a look", file=stream)


def _standard_input() -> str:
    return _text(sys.stdin.buffer.read(MAX_FILE + 1), "standard input")


def _read(path: pathlib.Path) -> str:
    try:
        with path.open("rb") as stream:
            return _text(stream.read(MAX_FILE + 1), str(path))
    except OSError as error:
        raise UserFault(str(path), error.strerror or str(error)) from error


def _text(content: bytes, name: str) -> str:
    if len(content) > MAX_FILE:
        raise UserFault(name, f"is longer than {MAX_FILE >> 20} MiB")
    return content.decode("utf-8", errors="replace")


def _write(path: pathlib.Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UserFault(
            str(path), "is there already, and nothing is overwritten", "remove it, or name another"
        ) from None
    except OSError as error:
        raise UserFault(str(path), error.strerror or str(error)) from error
