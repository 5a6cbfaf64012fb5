# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque.yml written: what a site says, with every other parameter as a comment that shows its default."""

from __future__ import annotations

import typing as t

from ...rendering.templates import as_yaml, render
from ...text import printable
from .parameters import PARAMETERS, Parameter, sections

TEMPLATE = "vtorque.yml.j2"
VARIABLE_PREFIX = "vtorque_"
"""What the roles put before a parameter's name."""


def policy_text(settings: t.Mapping[str, object], remarks: t.Mapping[str, t.Sequence[str]] | None = None) -> str:
    """The text of a configuration; it need not be a good one, and nothing that differs from a default is dropped.

    Args:
        settings: what the site says, by the names of parameters; what is at its default stays a comment.
        remarks: lines that are shown above a parameter, by its name.

    Returns:
        YAML, which `policy_file.parse` reads.
    """
    settings_lines = {
        name: as_yaml(value, str)
        for name, value in settings.items()
        if name not in PARAMETERS or not _is_default(PARAMETERS[name], value)
    }
    strange = [name for name in settings_lines if name not in PARAMETERS]
    return render(
        TEMPLATE,
        site_dir=None,
        sections=sections(),
        settings=settings_lines,
        strange=strange,
        remarks={name: [printable(line) for line in lines] for name, lines in (remarks or {}).items()},
    )


def variables_text(settings: t.Mapping[str, object], remarks: t.Mapping[str, t.Sequence[str]] | None = None) -> str:
    """Return a configuration as variables of the roles, for a file in group_vars.

    Args:
        settings: what the site says, by the names of parameters.
        remarks: lines that are shown above a parameter, by its name; also where nothing is set.

    Returns:
        YAML.
    """
    lines = ["---"]
    for name in PARAMETERS:
        lines += [f"# {printable(line)}" for line in (remarks or {}).get(name, ())]
        if name in settings and not _is_default(PARAMETERS[name], settings[name]):
            lines.append(f"{VARIABLE_PREFIX}{name}: {as_yaml(settings[name], str)}")
    return "\n".join(lines) + "\n"


def _is_default(parameter: Parameter, value: object) -> bool:
    default = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
    given = list(value) if isinstance(value, tuple) else value
    return given == default and isinstance(given, bool) == isinstance(default, bool)
