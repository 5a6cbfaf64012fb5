# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a package of capstan says of itself: `meta/package.yaml` and `meta/run.yaml`.

(capstan, Documentation/ConfigurationFiles.md; core/package.go.)  Every value is read as the text that stands there.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...errors import UserFault
from ...slow_libraries import load_library
from ...text import printable

MAX_BYTES = 1 << 16
MAX_DEPTH = 8
NATIVE = "native"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}"
_VERSION = r"[A-Za-z0-9][A-Za-z0-9.+~_-]{0,63}"
_REQUIREMENT = re.compile(rf"({_NAME}?)(?: ?(==|>=) ?({_VERSION}))?")
VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_CONFIG_KEYS = ("bootcmd", "main", "env")


@dataclasses.dataclass(frozen=True, slots=True)
class Requirement:
    """A package that another one needs.

    Attributes:
        name: of the package.
        operator: `==`, `>=`, or "" for any version.
        version: which `operator` compares with.
        wanted_by: the package that says so.
    """

    name: str
    operator: str
    version: str
    wanted_by: str

    def __str__(self) -> str:
        return f"{self.name} {self.operator} {self.version}".rstrip()

    def admits(self, version: str) -> bool:
        """Return whether a version of that package is good.

        Args:
            version: "" is one that is not known, and older than all.
        """
        if self.operator == "==":
            return version == self.version
        return not self.operator or version_key(version) >= version_key(self.version)


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """What `meta/package.yaml` says."""

    name: str
    title: str
    author: str
    version: str
    require: tuple[Requirement, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class RunConfig:
    """One set of `meta/run.yaml`.

    Attributes:
        name: of the set.
        command: the program and its arguments, as OSv's command line has them; "": none.
        variables: of its environment.
    """

    name: str
    command: str
    variables: t.Mapping[str, str]


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return what orders versions: numbers as numbers, `1.10` behind `1.9`, a word before any number."""
    parts = re.findall(r"[0-9]+|[A-Za-z]+", version)
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)


def parse_description(content: bytes, what: str) -> Description:
    """Parse `meta/package.yaml`.

    Args:
        content: of the file.
        what: the package, for messages.

    Raises:
        UserFault: it lacks a key that it must have, or says what no package can.
    """
    what = f"meta/package.yaml of {what}"
    found = _read_mapping(content, what)
    texts = {key: _read_text(found, key, what) for key in ("name", "title", "author", "version")}
    missing = [key for key in ("name", "title", "author") if not texts[key]]
    if missing:
        raise UserFault(what, f"does not say {' and '.join(missing)}", "name, title and author must be given")
    if not re.fullmatch(_NAME, texts["name"]):
        raise UserFault(what, f"name {printable(texts['name'][:80])!a}: letters, digits and . _ + - of ASCII")
    if texts["version"] and not re.fullmatch(_VERSION, texts["version"]):
        raise UserFault(what, f"version {printable(texts['version'][:80])!a} is none, like 1.2 or 2.0-rc1")
    wanted = found.get("require") or []
    if not isinstance(wanted, list) or not all(isinstance(one, str) for one in wanted):
        raise UserFault(what, "require is not a list of names of packages", "require: [libz, openmpi >= 4.1]")
    return Description(**texts, require=tuple(_parse_requirement(one, texts["name"], what) for one in wanted))


def _parse_requirement(text: str, package: str, what: str) -> Requirement:
    found = _REQUIREMENT.fullmatch(text.strip())
    if found is None:
        raise UserFault(
            what, f"require {printable(text[:80])!a} is no package", "NAME, NAME == VERSION or NAME >= VERSION"
        )
    return Requirement(found[1], found[2] or "", found[3] or "", package)


def parse_run(content: bytes, what: str) -> tuple[tuple[RunConfig, ...], str]:
    """Parse `meta/run.yaml`.

    Args:
        content: of the file.
        what: the package, for messages.

    Returns:
        Its sets, and the name of the one that counts where none is chosen; "": it names none.

    Raises:
        UserFault: it is of another runtime, or says what is not read.
    """
    what = f"meta/run.yaml of {what}"
    found = _read_mapping(content, what)
    runtime = _read_text(found, "runtime", what)
    if runtime != NATIVE:
        raise UserFault(
            what,
            f"runtime {printable(runtime[:40])!a} is not composed, only {NATIVE}",
            "an image for Java, Node or Python: runtime native, with the command that capstan runtime preview prints",
        )
    sets = found.get("config_set")
    if sets is None:
        sets = {"default": {key: value for key, value in found.items() if key in _CONFIG_KEYS}}
    if not isinstance(sets, dict) or not all(isinstance(one, dict) for one in sets.values()):
        raise UserFault(what, "config_set is not a mapping of names to sets")
    configs = tuple(_parse_config(name, values, what) for name, values in sets.items())
    default = _read_text(found, "config_set_default", what) or (configs[0].name if len(configs) == 1 else "")
    if default and default not in [one.name for one in configs]:
        raise UserFault(what, f"config_set_default {printable(default[:80])!a} is no set of it")
    return configs, default


def _parse_config(name: str, values: t.Mapping[str, t.Any], what: str) -> RunConfig:
    what = f"set {printable(name[:80])} in {what}"
    if others := sorted(set(values) - set(_CONFIG_KEYS)):
        raise UserFault(what, f"{printable(', '.join(others)[:80])} is not read", f"keys: {', '.join(_CONFIG_KEYS)}")
    variables = values.get("env") or {}
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise UserFault(what, "env is not a mapping of names to values")
    command = (_read_text(values, "bootcmd", what) or _read_text(values, "main", what)).strip()
    found = dict(variables)
    # capstan's manual has variables at the beginning of a command, too
    while command.startswith("--env="):
        option, _blank, command = command.partition(" ")
        one = VARIABLE.fullmatch(option.removeprefix("--env="))
        if one is None:
            raise UserFault(what, f"{printable(option[:80])!a} is no variable", "--env=NAME=VALUE")
        found[one[1]], command = one[2], command.lstrip()
    if command and not command.startswith("/"):
        raise UserFault(what, f"{printable(command[:80])!a} does not begin with the path of a program in the image")
    for key, value in found.items():
        if not VARIABLE.fullmatch(f"{key}={value}"):
            raise UserFault(what, f"env {printable(key[:80])!a} is not the name of a variable")
    return RunConfig(name, command, found)


def _read_text(values: t.Mapping[str, t.Any], key: str, what: str) -> str:
    value = values.get(key) or ""
    if not isinstance(value, str):
        raise UserFault(what, f"{key} is not a text")
    if not value.isprintable():
        raise UserFault(what, f"{key} {value[:80]!a} holds what does not print")
    return value


def _read_mapping(content: bytes, what: str) -> dict[str, t.Any]:
    """Read bounded YAML whose every scalar is a text: no tags, and nothing that refers to itself."""
    if len(content) > MAX_BYTES:
        raise UserFault(what, f"has more than {MAX_BYTES} bytes")
    yaml = load_library("yaml")
    try:
        text = content.decode()
        depth = 0
        for event in yaml.parse(text, Loader=yaml.CBaseLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH or getattr(event, "anchor", None) or getattr(event, "tag", None):
                raise UserFault(what, "tags, references (& and *) and deep nesting are not read", "write the value out")
        found = yaml.load(text, Loader=yaml.CBaseLoader)
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise UserFault(what, f"is no YAML: {printable(' '.join(str(error).split())[:200])}") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise UserFault(what, "is not a mapping of keys to values")
    return t.cast("dict[str, t.Any]", found)
