# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test calls, word by word: lists of words in programs and playbooks, lines of shell; never remarks."""

from __future__ import annotations

import ast
import pathlib
import re
import shlex
import typing as t

import yaml

Words = tuple[str, ...]
PLAYBOOK = re.compile(r"mikelangelo\.vtorque\.\w+")
IMAGES = {"debian12": "tiny"}
"""The image of which pages speak, and the one that tests have for it."""
PLAYERS = {"ansible-playbook", "playbook", "import_playbook"}
"""By one of these words a playbook is played: its name alone may be a role's."""
OF_ANSIBLE = ("-i", "-e", "--inventory", "--extra-vars", "-m", "-I", "--")
"""What each site says for itself, and what only starts Ansible."""


def calls(path: pathlib.Path) -> tuple[Words, ...]:
    """Everything in a file that may be a call.

    Args:
        path: of a Python program, a playbook, or a program of shell.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = _python(ast.parse(text))
    elif path.suffix == ".yml":
        found = _yaml(list(yaml.safe_load_all(text)))
    else:
        found = _shell(text)
    return tuple(arguments for arguments in found if arguments)


def holds(command: str, called: t.Iterable[Words]) -> bool:
    """Is a command among these calls, with nothing between its words?

    A test may say more behind them.  Of a playbook it is enough to play it with the same options, whatever inventory
    and variables are.  What stands in brackets need not be said.

    Args:
        command: as it is typed.
        called: what `calls` found.
    """
    fields = tuple(shlex.split(re.sub(r"\[[^\]]*\]", " ", command)))
    if fields[0] == "ansible-playbook" and (named := PLAYBOOK.search(command)):
        wanted = {named[0], *_options(fields)}
        plays = [call for call in called if PLAYERS & set(call)]
        return any(wanted <= set(call) and _options(call) <= wanted for call in plays)
    size, here = len(fields), tuple(IMAGES.get(word, word) for word in fields)
    parts = (call[at : at + size] for call in called for at in range(len(call) - size + 1))
    return any(part in (fields, here) for part in parts)


def _options(arguments: Words) -> set[str]:
    """Options that change what a playbook does."""
    own = [word for word in arguments if word.startswith("-") and word.partition("=")[0] not in OF_ANSIBLE]
    return {{"-C": "--check", "-D": "--diff"}.get(word, word) for word in own}


def _python(tree: ast.Module) -> t.Iterator[Words]:
    named = {
        target.id: node.value.value
        for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _runs(node.args, named)
        elif isinstance(node, (ast.List, ast.Tuple)):
            yield from _runs(node.elts, named)


def _runs(nodes: t.Sequence[ast.expr], named: t.Mapping[str, str]) -> t.Iterator[Words]:
    """Words that follow each other; what is only known when it runs ends a run, and each may be a line of shell."""
    run: list[str] = []
    for node in nodes:
        word = named.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
        if isinstance(node, (ast.Constant, ast.Name)) and isinstance(word, str):
            run.append(word)
            yield from _shell(word) if " " in word else ()
        else:
            yield tuple(run)
            run = []
    yield tuple(run)


def _yaml(data: t.Any) -> t.Iterator[Words]:
    if isinstance(data, dict):
        if "import_playbook" in data or "ansible.builtin.import_playbook" in data:
            yield ("import_playbook", str(data.get("import_playbook") or data["ansible.builtin.import_playbook"]))
        for value in data.values():
            yield from _yaml(value)
    elif isinstance(data, list):
        yield tuple(map(str, data))
        for value in data:
            yield from _yaml(value)
    elif isinstance(data, str):
        yield from _shell(data)


def _shell(text: str) -> t.Iterator[Words]:
    """The commands of lines of shell; a word that holds blanks may be such a line itself."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split, lexer.commenters = True, ""
            arguments = list(lexer)
        except ValueError:
            continue  # a line that ends within quotes
        command: list[str] = []
        for word in [*arguments, ";"]:
            if word.startswith("#"):
                yield tuple(command)
                break
            if word and set(word) <= set("();<>|&"):
                yield tuple(command)
                command = []
            else:
                command.append(word)
                if " " in word and word != text:
                    yield from _shell(word)
