# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one resolver of templates: the site's directory first, then the collection's own `templates/`."""

from __future__ import annotations

import pathlib
import re
import typing as t

from .errors import SiteFault

SITE_DIR = pathlib.Path("/etc/vtorque/templates")
COLLECTION_DIR = pathlib.Path(__file__).resolve().parents[2] / "templates"


def render(
    name: str, /, *, site_dir: pathlib.Path | None = SITE_DIR, compiled: pathlib.Path | None = None, **values: t.Any
) -> str:  # fmt: skip
    """Render the template `name` (a path below `templates/`).

    Escaping is for the format the template writes, told by its name: `.xml.j2` escapes for XML, everywhere
    and without being asked.  YAML, JSON and shell templates use the filters `yaml` (see `as_yaml`), `b64`
    (base64 in one line) and `quote` (one shell word); an undefined value is an error, never "".

    Args:
        name: for example `domain.xml.j2`, `cloud-init/user-data.j2`, `launchers/hook.sh.j2`.
        site_dir: the site's own templates, searched first; None for the collection's alone.
        compiled: the caller's own directory of what templates were compiled to; None: nothing is kept.
        **values: what the template may use.

    Raises:
        SiteFault: the template is missing, has a syntax error or uses an undefined value; says where.
    """
    import base64
    import shlex

    import jinja2

    from .compiled_templates import kept_in

    directories = [str(d) for d in (site_dir, COLLECTION_DIR) if d is not None]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(directories),
        autoescape=jinja2.select_autoescape(enabled_extensions=(".xml.j2", ".xml"), default=False),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=kept_in(compiled, pathlib.Path(__file__)) if compiled is not None else None,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["yaml"] = as_yaml
    environment.filters["b64"] = lambda value: base64.b64encode(str(value).encode()).decode("ascii")
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    try:
        return environment.get_template(name).render(**values)
    except jinja2.TemplateNotFound as error:
        raise SiteFault(f"template {name}", f"{error} is in none of {', '.join(directories)}") from error
    except jinja2.TemplateError as error:
        line = getattr(error, "lineno", None)
        raise SiteFault(f"template {name}" + (f", line {line}" if line else ""), str(error)) from error


def as_yaml(value: object, otherwise: t.Callable[[object], object] | None = None) -> str:
    """A value as one line of YAML in ASCII.

    It is JSON but for characters beyond U+FFFF: JSON has two surrogates for one of them, which libyaml refuses
    and PyYAML's own reader takes for two characters; YAML has `\\U` and eight digits (YAML 1.2, 5.7).

    Args:
        value: what JSON has.
        otherwise: makes of anything else something that JSON has.

    Raises:
        TypeError: it is something else, and `otherwise` is not given.
    """
    import json

    # only a string's characters are beyond ASCII
    return re.sub(r"[^\x00-\x7e]", _escaped, json.dumps(value, ensure_ascii=False, default=otherwise))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
