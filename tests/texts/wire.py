# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages between hosts, and the files of a start, as Markdown: read from the sources of the classes and constants."""

from __future__ import annotations

import ast
import pathlib
import re
import typing as t

MODULE_UTILS = pathlib.Path(__file__).resolve().parents[2] / "plugins/module_utils"
NO_FORMS = ("form", "ssh_options", "unquoted")
"""Modules of `wire` that define no message."""
ATTRIBUTE = re.compile(r"([a-z_]+): (.*)")


def page() -> str:
    """Return the generated part of docs/developer/wire-formats.md."""
    messages = [path for path in sorted((MODULE_UTILS / "wire").glob("[a-z]*.py")) if path.stem not in NO_FORMS]
    parts = [
        "## Files and directories\n\n",
        *_constants(MODULE_UTILS / "state/layout.py"),
        "## Records for the job's shell\n\n",
        *_classes(MODULE_UTILS / "state/records.py"),
        *(part for path in messages for part in (f"## Messages: {path.stem}\n\n", *_classes(path))),
        "## Forms of texts\n\n",
        *_forms(MODULE_UTILS / "wire/messages.py", messages),
    ]
    return "".join(parts)


def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _table(head: tuple[str, ...], rows: t.Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _assigned(body: list[ast.stmt]) -> t.Iterator[tuple[str, str, str]]:
    """Yield the names of each public assignment, its values, and the docstring below it."""
    for place, statement in enumerate(body):
        if not isinstance(statement, ast.Assign):
            continue
        after = body[place + 1] if place + 1 < len(body) else None
        below = after.value if isinstance(after, ast.Expr) else None
        meaning = str(below.value) if isinstance(below, ast.Constant) else ""
        names = ast.unparse(statement.targets[0]).strip("()")
        if not names.startswith("_") and (values := _texts(statement.value)):
            yield names, values, " ".join(meaning.split())


def _texts(value: ast.expr) -> str:
    """Return the texts that are assigned, as code; "" where anything else is."""
    if isinstance(value, ast.Tuple):
        texts = [_texts(one) for one in value.elts]
        return ", ".join(texts) if all(texts) else ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "pathlib.Path" and value.args:
        return _texts(value.args[0])
    return _code(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _constants(path: pathlib.Path) -> t.Iterator[str]:
    tree = _tree(path)
    rows = [(_code(names), values, meaning) for names, values, meaning in _assigned(tree.body)]
    yield _table(("constant", "name", "meaning"), rows)
    for group in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        members = [(_code(names), values, meaning) for names, values, meaning in _assigned(group.body)]
        if members:
            yield f"`{group.name}`: {_first_lines(group)}\n\n"
            yield _table(("member", "name", "meaning"), members)


def _first_lines(node: ast.ClassDef) -> str:
    """Return what a class is, from its docstring, without the attributes."""
    return " ".join((ast.get_docstring(node) or "").partition("Attributes:")[0].split())


def _classes(path: pathlib.Path) -> t.Iterator[str]:
    for node in _tree(path).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            rows = list(_fields(node))
            if rows:
                yield f"### {node.name}\n\n{_first_lines(node)}\n\n"
                yield _table(("field", "type", "form", "meaning"), rows)


def _fields(node: ast.ClassDef) -> t.Iterator[tuple[str, ...]]:
    meanings = _attributes(ast.get_docstring(node) or "")
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):
            name = ast.unparse(statement.target)
            yield _code(name), _code(ast.unparse(statement.annotation)), _form(statement.value), meanings.get(name, "")


def _form(value: ast.expr | None) -> str:
    """Return what a field may hold: a range, a form of texts, a default; "" where the type says all."""
    if value is None:
        return ""
    if not isinstance(value, ast.Call):
        return f"default {_code(ast.unparse(value))}"
    arguments = []
    if value.args:
        bounds = " .. ".join(_code(ast.unparse(one)) for one in value.args)
        only_high = "number" in ast.unparse(value.func) and len(value.args) == 1
        arguments.append(f"at most {bounds}" if only_high else bounds)
    defaults = [one.value for one in value.keywords if one.arg == "default"]
    arguments += [f"default {_code(ast.unparse(one))}" for one in defaults]
    secret = any(one.arg == "secret" and ast.unparse(one.value) == "True" for one in value.keywords)
    return "; ".join([*arguments, *(["secret"] if secret else [])])


def _attributes(text: str) -> dict[str, str]:
    """Return the meanings of fields, from the section `Attributes:` of a docstring."""
    meanings: dict[str, str] = {}
    name = ""
    for line in text.partition("Attributes:\n")[2].splitlines():
        found = ATTRIBUTE.fullmatch(line.strip())
        if found and line.startswith("    ") and not line.startswith("     "):
            name = found[1]
            meanings[name] = found[2]
        elif name:
            meanings[name] = f"{meanings[name]} {line.strip()}".strip()
    return meanings


def _forms(path: pathlib.Path, users: list[pathlib.Path]) -> t.Iterator[str]:
    """Yield those constants of a module that fields name as their form; a whole text must match."""
    fields = [
        statement.value
        for user in users
        for node in _tree(user).body
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and statement.value is not None
    ]
    named = {name.id for field in fields for name in ast.walk(field) if isinstance(name, ast.Name)}
    rows = [(_code(names), values, meaning) for names, values, meaning in _assigned(_tree(path).body) if names in named]
    yield _table(("form", "regular expression, or values", "meaning"), rows)
