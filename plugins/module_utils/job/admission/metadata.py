# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user adds to their guests (`-vm metadata=`): the few keys of cloud-config that need no root, read strictly.

The same reading for the user at submission and for root when the job starts.  Everything that passes is valid
cloud-config by cloud-init's own schema.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import typing as t

from ...wire.messages import ABSOLUTE_PATH, ANY_TEXT, PACKAGE, AddedFile, Additions, Command, Package
from ..config.parameters import Policy
from ..request import strict_yaml
from ..request.attached_file import FileErrors, FileFault
from ..request.keys import ADDITIONS
from ..request.strict_yaml import Items, Mapping, NotPlain, Plain, Text
from ..request.value_types import format_value, nearest
from . import start_directory
from .packages import not_allowed
from .refused_keys import REFUSED, REFUSED_OF_FILES

MAX_BYTES = 1 << 16
MAX_ITEMS = 100
"""Packages, files and commands, of each."""
MAX_PATH = 1000
OWN_PLACES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - of the guest
"""What every guest has for itself and lets everybody write in."""
PLAIN, ENCODED = "text/plain", ("b64", "base64")
FILE_KEYS = ("path", "content", "permissions", "encoding")


class AdditionsErrors(FileErrors):
    """What is wrong with a user's additions."""

    KEY = ADDITIONS


def read(content: bytes, path: str, policy: Policy, home: str) -> Additions:
    """Read a user's file, and hold it against what the site allows.

    Args:
        content: of the file.
        path: what it is called in messages.
        policy: the site's.
        home: the user's.

    Returns:
        What it adds.

    Raises:
        AdditionsErrors: with everything that is wrong.
    """
    if len(content) > MAX_BYTES:
        raise AdditionsErrors(path, [FileFault(0, f"longer than {MAX_BYTES >> 10} KiB")])
    try:
        root = strict_yaml.read(content)
    except NotPlain as error:
        raise AdditionsErrors(path, [FileFault(error.line, error.why)]) from None
    reader = _Reader(policy, home)
    found = reader.additions(root)
    if reader.faults:
        raise AdditionsErrors(path, sorted(reader.faults, key=lambda fault: fault.line))
    return found


def describe(additions: Additions) -> str:
    """What is added, in a few words for people."""
    counts = (
        (len(additions.packages), "package"),
        (len(additions.files), "file"),
        (len(additions.commands), "command"),
    )
    return ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count)


class _Reader:
    """One reading: what is wrong is collected, and the rest read on."""

    def __init__(self, policy: Policy, home: str) -> None:
        self.faults: list[FileFault] = []
        self._policy = policy
        places = (home, *start_directory.covered(policy, home), *OWN_PLACES)
        self._places = tuple(dict.fromkeys(places))

    def additions(self, root: Plain | None) -> Additions:
        readers = {"packages": self._packages, "write_files": self._files, "runcmd": self._commands}
        if root is None or (isinstance(root, Mapping) and not root.entries):
            self._fault(0, f"holds nothing; allowed: {', '.join(readers)}")
            return Additions()
        if not isinstance(root, Mapping):
            self._fault(root.line, f"a mapping is due, with {', '.join(readers)}")
            return Additions()
        found: dict[str, t.Any] = {}
        for entry in root.entries:
            key = entry.key.value
            if key in readers:
                found[key] = tuple(readers[key](self._items(key, entry.value)))
            elif key in REFUSED:
                self._fault(entry.key.line, f"{key}: {REFUSED[key]}")
            else:
                problem = f"no such key{nearest(key, readers)}; allowed: {', '.join(readers)}"
                self._fault(entry.key.line, f"{format_value(key)}: {problem}")
        return Additions(found.get("packages", ()), found.get("write_files", ()), found.get("runcmd", ()))

    def _fault(self, line: int, message: str) -> None:
        self.faults.append(FileFault(line, message))

    def _items(self, key: str, value: Plain) -> tuple[Plain, ...]:
        if not isinstance(value, Items) or not value.items:
            self._fault(value.line, f"{key}: a list is due, with something in it")
            return ()
        if len(value.items) > MAX_ITEMS:
            self._fault(value.line, f"{key}: {len(value.items)} entries, at most {MAX_ITEMS} are read")
            return ()
        return value.items

    def _text(self, what: str, value: Plain) -> str | None:
        """A text that can be written as UTF-8 and holds no NUL; None: it is none, and that was said."""
        if not isinstance(value, Text):
            self._fault(value.line, f"{what}: a text is due")
        elif value.taken_for:
            problem = (
                f"{format_value(value.value) or 'nothing'} is no text to YAML ({value.taken_for}): put it in quotes"
            )
            self._fault(value.line, f"{what}: {problem}")
        elif value.value and not re.fullmatch(ANY_TEXT, value.value):
            self._fault(value.line, f"{what}: holds NUL or half of a character, which no text has")
        else:
            return value.value
        return None

    def _packages(self, items: tuple[Plain, ...]) -> t.Iterator[Package]:
        seen: set[str] = set()
        for number, item in enumerate(items):
            what = f"packages[{number}]"
            name = self._text(what, item)
            if name is None:
                continue
            if not re.fullmatch(PACKAGE, name):
                self._fault(
                    item.line, f"{what}: {format_value(name)!r} is not the name of a package, without a version"
                )
            elif name not in self._policy.metadata_packages:
                meant = nearest(name, self._policy.metadata_packages)
                self._fault(item.line, f"{what}: {name} is {not_allowed(self._policy)}{meant}")
            elif name in seen:
                self._fault(item.line, f"{what}: {name} is given twice")
            else:
                seen.add(name)
                yield Package(name)

    def _files(self, items: tuple[Plain, ...]) -> t.Iterator[AddedFile]:
        seen: set[str] = set()
        for number, item in enumerate(items):
            file = self._file(f"write_files[{number}]", item)
            if file is None:
                continue
            if file.path in seen:
                self._fault(item.line, f"write_files[{number}]: {file.path} is given twice")
                continue
            seen.add(file.path)
            yield file

    def _file(self, what: str, item: Plain) -> AddedFile | None:
        if not isinstance(item, Mapping):
            self._fault(item.line, f"{what}: a mapping is due, with {', '.join(FILE_KEYS)}")
            return None
        before = len(self.faults)
        values: dict[str, str] = {}
        for entry in item.entries:
            key, line = entry.key.value, entry.key.line
            if key in FILE_KEYS:
                values[key] = self._text(f"{what}.{key}", entry.value) or ""
            elif key in REFUSED_OF_FILES:
                self._fault(line, f"{what}.{key}: {REFUSED_OF_FILES[key]}")
            else:
                problem = f"no such key{nearest(key, FILE_KEYS)}; allowed: {', '.join(FILE_KEYS)}"
                self._fault(line, f"{what}.{format_value(key)}: {problem}")
        if len(self.faults) > before:
            return None
        problems = [self._path_objection(values.get("path", "")), _mode_objection(values.get("permissions", "0644"))]
        content = _encoded(values.get("content", ""), values.get("encoding", PLAIN))
        problems += [] if content is not None else ["content is not in the encoding; allowed: text/plain, b64, base64"]
        for problem in filter(None, problems):
            self._fault(item.line, f"{what}: {problem}")
        if content is None or len(self.faults) > before:
            return None
        return AddedFile(values["path"], values.get("permissions", "0644")[-3:], content)

    def _path_objection(self, path: str) -> str:
        """Why a file cannot be written there, or ""; in the guest the user's own rights decide."""
        well = re.fullmatch(ABSOLUTE_PATH, path) and path.isprintable() and len(path) <= MAX_PATH
        if not well or any(part in ("", ".", "..") for part in path.split("/")[1:]):
            return f"path {format_value(path)!r}: an absolute path of a file is due, without '..'"
        if path in self._places or not start_directory.is_below(path, self._places):
            return f"path {format_value(path)}: files are written as you, below {', '.join(self._places)}"
        return ""

    def _commands(self, items: tuple[Plain, ...]) -> t.Iterator[Command]:
        for number, item in enumerate(items):
            what = f"runcmd[{number}]"
            parts = item.items if isinstance(item, Items) else (item,)
            before = len(self.faults)
            argv = [self._text(what, part) or "" for part in parts]
            if len(self.faults) > before:
                continue
            line = shlex.join(argv) if isinstance(item, Items) else argv[0]
            if not argv or not argv[0].strip():
                self._fault(item.line, f"{what}: an empty command")
            else:
                yield Command(line)


def _mode_objection(mode: str) -> str:
    if re.fullmatch("0?[0-7]{3}", mode):
        return ""
    return f"permissions {format_value(mode)!r}: three octal digits are due, as '0644'; no setuid, no setgid"


def _encoded(content: str, encoding: str) -> str | None:
    """The content in base64; None: it is not in the encoding, or that is none."""
    if encoding == PLAIN:
        return base64.b64encode(content.encode()).decode("ascii")
    if encoding not in ENCODED:
        return None
    try:
        data = base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    return base64.b64encode(data).decode("ascii")
