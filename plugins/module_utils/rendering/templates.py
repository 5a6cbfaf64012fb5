# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one resolver of templates: the site's directory first, then the collection's own `templates/`."""

from __future__ import annotations

import base64
import json
import pathlib
import re
import shlex
import typing as t

from ..effects import leaves_nothing
from ..errors import SiteFault
from ..slow_libraries import load_library
from .bytecode_cache import open_cache

SITE_DIR = pathlib.Path("/etc/vtorque/templates")
COLLECTION_DIR = pathlib.Path(__file__).resolve().parents[3] / "templates"


@leaves_nothing
def render(
    name: str, /, *, site_dir: pathlib.Path | None = SITE_DIR, compiled: pathlib.Path | None = None, **values: t.Any
) -> str:
    """Render the template `name` (a path below `templates/`).

    Escaping is for the format the template writes, told by its name: `.xml.j2` and `.html.j2` escape for XML and
    HTML, everywhere and without being asked.  YAML, JSON and shell templates use the filters `yaml` (see `as_yaml`),
    `b64` (base64 in one line) and `quote` (one shell word); an undefined value is an error, never "".

    Args:
        name: for example `domain.xml.j2`, `cloud-init/user-data.j2`, `batch/torque/hook.sh.j2`.
        site_dir: the site's own templates, searched first; None for the collection's alone.
        compiled: the caller's own directory of what templates were compiled to; None: nothing is kept.
        **values: what the template may use.

    Raises:
        SiteFault: the template is missing, has a syntax error or uses an undefined value; says where.
    """
    jinja2 = load_library("jinja2")
    directories = [str(d) for d in (site_dir, COLLECTION_DIR) if d is not None]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(directories),
        autoescape=jinja2.select_autoescape(enabled_extensions=(".xml.j2", ".xml", ".html.j2"), default=False),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=open_cache(compiled, pathlib.Path(__file__)) if compiled is not None else None,
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
    """A value as one line of YAML in ASCII, which each reader of YAML 1.1 takes for the same value.

    Args:
        value: what JSON has.
        otherwise: makes of anything else something that JSON has.

    Raises:
        TypeError: it is something else, and `otherwise` is not given.
        SiteFault: a text holds half of a character, which no YAML has.
    """
    text = json.dumps(value, ensure_ascii=False, default=otherwise)
    if half := re.search("[\ud800-\udfff]", text):
        why = f"U+{ord(half[0]):04X} in a text of it is half of a character"
        raise SiteFault("a value cannot be written as YAML", why, "write the text in UTF-8")
    return json_as_yaml(text, _BEYOND_ASCII)


_BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")
_LONGEST_KEY = 1000
"""Characters: a key of more than 1024 is none to YAML (1.2, 7.4.2) unless `?` says so."""
_JSON_TOKEN = re.compile(r"""("[^"\\]*(?:\\.[^"\\]*)*")(:?)|-?[0-9][0-9.]*e[-+][0-9]+|-?Infinity|NaN""")


def json_as_yaml(text: str, escaped: re.Pattern[str]) -> str:
    """The text of `json.dumps` as YAML 1.1; it differs in what YAML reads otherwise.

    JSON has two surrogates for a character beyond U+FFFF, which libyaml refuses and PyYAML's own reader takes for two
    characters; YAML has `\\U` and eight digits (YAML 1.2, 5.7).  `1e+20` is a text to PyYAML, as it has no point.

    Args:
        text: with its characters as they are (`ensure_ascii=False`), and no lone surrogates.
        escaped: matches a character that is to be written by its number.
    """

    def format_token(token: re.Match[str]) -> str:
        if token[1] is None:
            number = token[0].replace("Infinity", ".inf").replace("NaN", ".nan")
            return number if "." in number else number.replace("e", ".0e")
        string = escaped.sub(_escaped, token[1])
        return f"? {string}{token[2]}" if token[2] and len(string) > _LONGEST_KEY else string + token[2]

    return _JSON_TOKEN.sub(format_token, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
