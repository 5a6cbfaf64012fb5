# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What repeats the table of parameters: a role's options, a page of tables, and vtorque.yml(5)."""

from __future__ import annotations

import json
import textwrap
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.consistency import format_for_request
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.legacy import GONE, NEW_NAMES
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import (
    BOUNDS_OF,
    DEFAULT_OF,
    Parameter,
    sections,
)

TYPES = {"word": "str", "path": "str", "flag": "bool", "number": "int", "size": "str", "list": "list"}
"""A size may be `24G`, which is no number, and a role's path is the host's, not the controller's."""
HEAD = "| parameter | what it does | allowed | default |\n|---|---|---|---|"


def default_of(parameter: Parameter) -> t.Any:
    """The default as people write it; None: nothing is set."""
    if isinstance(parameter.default, tuple):
        return list(parameter.default)
    if parameter.kind.form == "size" and isinstance(parameter.default, int):
        return format_for_request("ram", parameter.default)
    return parameter.default


def shown_default(parameter: Parameter) -> str:
    """The default in Markdown, or ""."""
    default = default_of(parameter)
    return "" if default is None else f"`{default if isinstance(default, str) else json.dumps(default)}`"


def options() -> str:
    """The parameters as options of a role's argument specification."""
    lines = []
    for title, parameters in sections():
        lines.append(f"      # {title}")
        for parameter in parameters:
            lines += [f"      vtorque_{parameter.name}:", f"        type: {TYPES[parameter.kind.form]}"]
            if parameter.kind.form == "list":
                lines.append("        elements: str")
            if (default := default_of(parameter)) is not None:
                lines.append(f"        default: {json.dumps(default)}")
            arguments = [sentence(parameter.meaning), f"Allowed: {parameter.kind.allowed}."]
            lines += ["        description:", *(_quoted(word) for word in arguments if word)]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """An entry of a list in quotes, in which no character means anything, and a line's end is a blank."""
    return textwrap.indent(
        textwrap.fill(json.dumps(text), 140, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False),
        " " * 12,
    ).replace(" " * 12, " " * 10 + "- ", 1)


def sentence(text: str) -> str:
    """With a capital, where it does not begin with a name, and a full stop."""
    first = text.partition(" ")[0]
    begin = text if "_" in first or first in DEFAULT_OF or first == "vsub" else text[0].upper() + text[1:]
    return f"{begin}."


def page() -> str:
    """Return the tables of docs/admin/parameters.md."""
    lines = []
    for title, parameters in sections():
        lines += [f"## {sentence(title)[:-1]}", "", HEAD]
        for parameter in parameters:
            does = sentence(parameter.meaning)
            cells = (f"`{parameter.name}`", does, short_allowed(parameter), shown_default(parameter))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    bounds = sorted({f"`{key}`: `{low}` to `{high}`" for key, (low, high) in BOUNDS_OF.items()})
    lines += ["## Bounds of requests", "", *(f"* {line}" for line in bounds)]
    renamed = [f"| `{old}` | `{new}` |" for old, new in NEW_NAMES.items() if old != new.upper()]
    lines += ["", "## Names in the original's config.sh", "", "Most old names are the parameter's in capitals. Others:"]
    lines += ["", "| old name | parameter |", "|---|---|", *renamed]
    gone = [f"| `{name}` | {why} |" for name, why in GONE.items()]
    lines += ["", "## Old names without a parameter", "", "| old name | why |", "|---|---|", *gone]
    return "\n".join(lines) + "\n"


def short_allowed(parameter: Parameter) -> str:
    """Return what a parameter takes, for a column of its own: the type says what is not repeated."""
    if parameter.kind.form == "flag":
        return "`true`, `false`"
    allowed = parameter.kind.allowed.removeprefix("a whole number from ")
    allowed = allowed.replace("a number with K, M, G or T (MiB when bare)", "a size")
    for repeated in ("a list: ", ", without '..', ',' and ';'", ", in whole MiB"):
        allowed = allowed.replace(repeated, "")
    return f"list: {allowed}" if parameter.kind.form == "list" else allowed


def manual() -> str:
    """The parameters in vtorque.yml(5), as Markdown."""
    lines = []
    for title, parameters in sections():
        lines += [f"### {sentence(title)[:-1]}", ""]
        for parameter in parameters:
            default = shown_default(parameter) or "nothing"
            arguments = (sentence(parameter.meaning), f"Allowed: {parameter.kind.allowed}.", f"Default: {default}.")
            lines += [f"`{parameter.name}`", f": {' '.join(arguments)}", ""]
    return "\n".join(lines)
