# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recipe of a guest image: what a site adds to the system, read and checked whole before anything is built."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import difflib
import hashlib
import json
import os
import pathlib
import posixpath
import re
import stat
import typing as t

from ...errors import UserFault
from ...text import printable

with contextlib.suppress(ImportError):  # the roles install it; ansible-test imports this file without it
    import yaml


MAX_RECIPE = 1 << 20
KEYS = ("packages", "files", "commands")
FILE_KEYS = ("path", "content", "source", "mode", "owner")
ALLOWED_DIRECTORIES = ("/opt-vm", "/usr/local", "/etc")
"""Where a recipe may put files: not where packages have theirs, nor where a guest mounts something over them."""
RESERVED_PATHS = {
    **dict.fromkeys(
        ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid"),
        "accounts are the packages' and the job's",
    ),
    **dict.fromkeys(("/etc/machine-id", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf"), "it is each guest's own"),
    "/etc/fstab": "the site's `mounts` say what guests mount",
    "/etc/cloud": "it is what makes the image boot fast, and from its seed alone",
    "/etc/vtorque": "vTorque writes there in the guest",
    "/etc/sudoers": "users have no rights of root in a guest",
    "/etc/sudoers.d": "users have no rights of root in a guest",
}
"""What no file of a recipe may be, or lie in, and why."""
NO_USERS = (
    "an image has no users: the job's own is made in the guest, with the ids that they have on the node; "
    "what runs as a service brings its system user in its package"
)
_ABOUT_USERS = ("user", "users", "group", "groups", "passwords", "chpasswd", "ssh_authorized_keys")
_HOST_KEY = re.compile(r"/etc/ssh/ssh_host_[^/]*")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?([=/][A-Za-z0-9.+:~-]+)?")
_MODE = re.compile(r"0?[0-7]{3}")
MODE = "0644"


class RecipeErrors(UserFault):
    """Everything that is wrong with a recipe, told at once.

    Attributes:
        faults: one sentence for each.
    """

    def __init__(self, file: pathlib.Path | str, faults: t.Sequence[str]) -> None:
        super().__init__(f"the recipe {file}", "; ".join(faults), "nothing was built")
        self.faults = tuple(faults)


@dataclasses.dataclass(frozen=True, slots=True)
class RecipeFile:
    """One file of the image, which root owns.

    Attributes:
        path: in the image.
        mode: its rights.
        content: of it; None: `source` has it.
        source: a file where the recipe is read.
    """

    path: str
    mode: int
    content: bytes | None = None
    source: pathlib.Path | None = None

    def digest(self) -> str:
        """The SHA-256 of what it holds.

        Raises:
            OSError: the source cannot be read.
        """
        if self.source is None:
            return hashlib.sha256(self.content or b"").hexdigest()
        with self.source.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """What a site adds to an image.

    Attributes:
        packages: of the distribution.
        files: put there when all packages are.
        commands: run then as root in the image, one after the other.
    """

    packages: tuple[str, ...] = ()
    files: tuple[RecipeFile, ...] = ()
    commands: tuple[str, ...] = ()

    def digest(self) -> str:
        """Return a digest that is equal for recipes that make the same of the same packages, however they are written.

        Raises:
            OSError: a source cannot be read.
        """
        files = sorted((file.path, file.mode, file.digest()) for file in self.files)
        content = [sorted(set(self.packages)), files, self.commands]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read(path: pathlib.Path) -> Recipe:
    """Read a recipe and check all of it.

    Args:
        path: of the file; sources that are relative lie beside it.

    Raises:
        UserFault: it cannot be read, or is no YAML.
        RecipeErrors: something in it is wrong; all of it is named.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_RECIPE + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise UserFault(f"the recipe {path}", error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UserFault(f"the recipe {path}", f"is no text in UTF-8: {error}") from error
    if len(content) > MAX_RECIPE:
        raise UserFault(f"the recipe {path}", f"has more than {MAX_RECIPE >> 10} KiB", "name large files as `source`")
    return parse(text, path)


def parse(text: str, path: pathlib.Path) -> Recipe:
    """Read a recipe out of a text.

    Args:
        text: YAML.
        path: what it is called in messages; sources that are relative lie beside it.

    Raises:
        UserFault: it is no YAML.
        RecipeErrors: see `read`.
    """
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise UserFault(f"the recipe {path}", f"not YAML: {where}{getattr(error, 'problem', error)}") from None
    reader = _Reader(path.parent)
    recipe = reader.recipe(root)
    if reader.faults:
        # as somebody reads the file
        raise RecipeErrors(path, [f"line {line}: {fault}" for line, fault in sorted(reader.faults)])
    return recipe


class _Reader:
    """Goes through the nodes of YAML, which know their lines, and keeps what is wrong."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.faults: list[tuple[int, str]] = []

    def fault(self, node: yaml.Node, what: str, why: str) -> None:
        self.faults.append((node.start_mark.line + 1, f"{printable(what[:120])}: {printable(why)}"))

    def recipe(self, root: yaml.Node | None) -> Recipe:
        if root is None:
            return Recipe()
        known = self.mapping(root, "the recipe", KEYS)
        packages = self.texts(known.get("packages"), "packages")
        for node, word in packages:
            if not _PACKAGE.fullmatch(word):
                self.fault(node, f"packages: {word}", "is no name of a package (name, name=version or name/suite)")
        commands = self.texts(known.get("commands"), "commands")
        for node, word in commands:
            if not word.strip() or "\0" in word:
                self.fault(node, "commands", "a command is empty, or holds a zero byte")
        files = tuple(filter(None, (self.file(node) for node in self.entries(known.get("files"), "files"))))
        self.alone(files, known.get("files"))
        return Recipe(tuple(word for _node, word in packages), files, tuple(word for _node, word in commands))

    def mapping(self, node: yaml.Node, what: str, keys: tuple[str, ...]) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, what, f"is a mapping of {', '.join(keys)}")
            return {}
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            if key in found:
                self.fault(key_node, key, "is given twice")
            elif key in _ABOUT_USERS:
                self.fault(key_node, key, NO_USERS)
            elif key not in keys:
                near = difflib.get_close_matches(key[:64].lower(), keys, n=1, cutoff=0.6)
                meant = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(keys)}"
                self.fault(key_node, key, f"no such key{meant}")
            else:
                found[key] = value
        return found

    def entries(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        if node is None or _is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.fault(node, what, "is a list")
            return []
        return list(node.value)

    def texts(self, node: yaml.Node | None, what: str) -> list[tuple[yaml.Node, str]]:
        found = [(entry, self.text(entry, what)) for entry in self.entries(node, what)]
        return [(entry, word) for entry, word in found if word is not None]

    def text(self, node: yaml.Node, what: str) -> str | None:
        if isinstance(node, yaml.ScalarNode) and not _is_null(node):
            return str(node.value)
        self.fault(node, what, "is a text")
        return None

    def file(self, node: yaml.Node) -> RecipeFile | None:
        count = len(self.faults)
        known = self.mapping(node, "files", FILE_KEYS)
        if "path" not in known:
            if len(self.faults) == count:
                self.fault(node, "files", "a file without a path")
            return None
        values = {key: self.text(value, key) for key, value in known.items()}
        path = values.get("path") or ""
        if why := _objection(path):
            self.fault(known["path"], path or "path", why)
        if values.get("owner", "root") != "root":
            self.fault(known["owner"], f"{path}: owner {values['owner']}", "files of an image are root's")
        mode = values.get("mode", MODE) or ""
        if not _MODE.fullmatch(mode) or int(mode, 8) & 0o022:
            self.fault(
                known["mode"],
                f"{path}: mode {mode}",
                "three octal digits, and nobody but root may write (0644, 0755, 0600)",
            )
        content, source = values.get("content"), values.get("source")
        if ("content" in known) == ("source" in known):
            self.fault(node, path, "has either content or a source")
        place = self.source(known["source"], path, source) if source else None
        if len(self.faults) > count:
            return None
        return RecipeFile(path, int(mode, 8), None if content is None else content.encode(), place)

    def source(self, node: yaml.Node, path: str, word: str) -> pathlib.Path | None:
        place = self.directory / word
        try:
            facts = place.stat()
        except (OSError, ValueError) as error:
            self.fault(node, f"{path}: source {word}", getattr(error, "strerror", "") or str(error))
            return None
        if not stat.S_ISREG(facts.st_mode):
            self.fault(
                node, f"{path}: source {word}", "is no file; bring a tree as an archive, and unpack it by a command"
            )
        elif not os.access(place, os.R_OK):
            self.fault(node, f"{path}: source {word}", "cannot be read")
        return place

    def alone(self, files: t.Sequence[RecipeFile], node: yaml.Node | None) -> None:
        """No two files are the same, or one the directory of another."""
        paths = sorted(file.path for file in files)
        for one, count in collections.Counter(paths).items():
            if count > 1:
                self.fault(t.cast("yaml.Node", node), one, "is given twice")
            if inner := next((path for path in paths if path.startswith(f"{one}/")), ""):
                self.fault(t.cast("yaml.Node", node), one, f"is a file and the directory of {inner}")


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _objection(path: str) -> str:
    """Why a file of a recipe may not be there, or ""."""
    if not path.startswith("/") or posixpath.normpath(path) != path or not path.isprintable() or path.startswith("//"):
        return "is no plain path from the root"
    if not any(path.startswith(f"{place}/") for place in ALLOWED_DIRECTORIES):
        return f"lies outside {', '.join(ALLOWED_DIRECTORIES)}; applications go to /opt-vm"
    if _HOST_KEY.fullmatch(path):
        return "a host key is each guest's own"
    found = next((place for place in RESERVED_PATHS if path == place or path.startswith(f"{place}/")), "")
    return f"may not be brought: {RESERVED_PATHS[found]}" if found else ""
