# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many files, directories, links and blocks of text of root's, placed or removed one after the other.

Runs on hosts that have nothing of the product yet, with whatever Python Ansible finds there (3.9 and later).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import stat
import tempfile
import typing as t

BLOCK = re.compile(rb"(?ms)^# BEGIN VTORQUE.*?^# END VTORQUE[^\n]*\n?")
"""A block of ours in a file of the site's, of whichever marker."""
OWN_MODES = {"file": "0644", "directory": "0755", "block": "0644"}
ENTRY: t.Dict[str, t.Any] = {
    "path": {"type": "path", "required": True},
    "state": {"choices": ["file", "directory", "link", "block", "absent", "empty"], "default": "file"},
    "content": {"type": "str", "default": ""},
    "template": {"type": "str"},
    "values": {"type": "dict", "default": {}},
    "source": {"type": "path"},
    "each": {"type": "list", "elements": "str"},
    "target": {"type": "str", "default": ""},
    "mode": {"type": "str"},
    "force": {"type": "bool", "default": True},
    "within": {"type": "path"},
    "marker": {"type": "str", "default": "# {mark} VTORQUE"},
    "validate": {"type": "str"},
}
"""An entry, as a specification of Ansible's."""
EXCLUDE = [["content", "template", "source"]]
"""Of which an entry has one at the most."""
SPEC: t.Dict[str, t.Any] = {
    "entries": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": ENTRY,
        "mutually_exclusive": EXCLUDE,
    },
    "gone": {"type": "list", "elements": "path", "default": []},
}
"""The arguments of the module, and of the action before it."""
CONTROLLER_KEYS = ("template", "values", "source", "each")
"""What the action plugin turns into `content` and `path`."""

Run = t.Callable[[t.Sequence[str]], t.Tuple[int, str]]
Label = t.Callable[[str], None]


class PlacingError(Exception):
    """What is wrong with an entry, in a sentence that names it.

    Attributes:
        changes: what was done before it.
    """

    def __init__(self, message: str, changes: t.Sequence[Change] = ()) -> None:
        super().__init__(message)
        self.changes = tuple(changes)


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry: a file, a directory, a link or a block, as it is to be.

    Attributes:
        path: absolute.
        state: `file`, `directory`, `link`, `block`, `absent`, or `empty`: absent when nothing is in it.
        content: of a file or a block; an empty block is none.
        target: of a link.
        mode: as "0644"; None: `OWN_MODES`.  A file that is there keeps its own when a block is written into it.
        force: whether what is there already may be replaced.
        within: a directory; where it is missing the entry is not wanted.
        marker: of a block, with `{mark}` for BEGIN and END.
        validate: arguments of a command, of which `%s` becomes the name of a file that is to be placed.
    """

    path: str
    state: str = "file"
    content: str = ""
    target: str = ""
    mode: str | None = None
    force: bool = True
    within: str | None = None
    marker: str = "# {mark} VTORQUE"
    validate: str | None = None


@dataclasses.dataclass(frozen=True)
class Change:
    """What was done to an entry, or would be; `before` and `after` are for a diff."""

    path: str
    before: str
    after: str


class EntryWriter:
    """Applies entries in one pass; in check mode later entries see what earlier ones would have done.

    Args:
        check: change nothing.
        removed_paths: that others would have removed, in check mode.
        label: gives a new file the label that the host has for its place.
        run: runs a command; its status, and what it wrote.
    """

    def __init__(self, *, check: bool, removed_paths: t.Iterable[str], label: Label, run: Run) -> None:
        self._check, self._label, self._run = check, label, run
        self._removed_paths = set(removed_paths) if check else set()
        self._planned: dict[str, bytes] = {}
        self._made: set[str] = set()
        self._kinds: dict[str, t.Callable[[Entry], Change | None]] = {
            "file": self._file,
            "directory": self._directory,
            "link": self._link,
            "block": self._block,
            "absent": self._absent,
            "empty": self._empty,
        }

    def apply(self, entries: t.Iterable[Entry]) -> list[Change]:
        """Apply entries in their order.

        Raises:
            PlacingError: one cannot be placed; those before it are.
        """
        changes: list[Change] = []
        for entry in entries:
            try:
                change = self._place(entry)
            except PlacingError as error:
                raise PlacingError(str(error), changes) from error
            except OSError as error:
                raise PlacingError(f"{entry.path}: {error.strerror or error}", changes) from error
            if change is not None:
                changes.append(change)
        return changes

    def _place(self, entry: Entry) -> Change | None:
        if not pathlib.Path(entry.path).is_absolute():
            raise PlacingError(f"{entry.path} does not begin at the root")
        if entry.within is not None and not self._is_directory(entry.within):
            return None
        if not entry.force and self._is_there(entry.path):
            return None
        return self._kinds[entry.state](entry)

    def _is_there(self, path: str) -> bool:
        return path in self._planned or path in self._made or (os.path.lexists(path) and not self._is_removed(path))

    def _is_removed(self, path: str) -> bool:
        return bool(self._removed_paths) and any(
            str(one) in self._removed_paths for one in (path, *pathlib.Path(path).parents)
        )

    def _is_directory(self, path: str) -> bool:
        """A link is none, whatever it leads to: what it leads to may be other hosts', too."""
        place = pathlib.Path(path)
        return path in self._made or (place.is_dir() and not place.is_symlink() and not self._is_removed(path))

    def _read(self, path: pathlib.Path) -> bytes | None:
        """What is in a file, or would be by now in check mode; None: there is none."""
        if str(path) in self._planned:
            return self._planned[str(path)]
        return path.read_bytes() if path.is_file() and not self._is_removed(str(path)) else None

    def _file(self, entry: Entry) -> Change | None:
        path = pathlib.Path(entry.path)
        if path.is_dir() and not path.is_symlink():
            raise PlacingError(f"{entry.path} is a directory, and a file is wanted there")
        former = self._read(path) if not path.is_symlink() else None
        return self._write_if_changed(entry, path, former, entry.content.encode(), _mode(entry))

    def _block(self, entry: Entry) -> Change | None:
        """As ansible.builtin.blockinfile does it, at the end of the file or where the block is."""
        path = pathlib.Path(os.path.realpath(entry.path))
        former = self._read(path)
        if former is None and not entry.content:
            return None
        content = with_block(former or b"", entry.content.encode(), entry.marker)
        if former is not None and path.exists():
            return self._write_if_changed(
                entry, path, former, content, stat.S_IMODE(path.stat().st_mode), owner=path.stat()
            )
        return self._write_if_changed(entry, path, former, content, _mode(entry))

    def _write_if_changed(
        self,
        entry: Entry,
        path: pathlib.Path,
        former: bytes | None,
        content: bytes,
        mode: int,
        owner: os.stat_result | None = None,
    ) -> Change | None:
        uid, gid = (owner.st_uid, owner.st_gid) if owner else (os.geteuid(), os.getegid())
        found = path.stat() if former is not None and path.exists() else None
        had = (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) if found is not None else None
        if former == content and (had == (uid, gid, mode) or str(path) in self._planned):
            return None
        if self._check:
            self._planned[str(path)] = content
        else:
            if former == content:
                os.chown(path, uid, gid)
                path.chmod(mode)
            else:
                self._replace(entry, path, content, mode, (uid, gid))
        self._removed_paths.discard(entry.path)
        if former == content and had is not None:
            return Change(entry.path, _attributes(*had), _attributes(uid, gid, mode))
        return Change(entry.path, _text(former or b""), _text(content))

    def _replace(self, entry: Entry, path: pathlib.Path, content: bytes, mode: int, owner: tuple[int, int]) -> None:
        number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            is_new = not path.is_file() or path.is_symlink()
            with os.fdopen(number, "wb") as stream:
                stream.write(content)
            if not is_new:  # what the site gave it besides its mode stays: an ACL, a label, other attributes
                shutil.copystat(path, temporary)
                os.utime(temporary)
            os.chown(temporary, *owner)
            pathlib.Path(temporary).chmod(mode)
            if entry.validate:
                status, output = self._run([word.replace("%s", temporary) for word in entry.validate.split()])
                if status != 0:
                    raise PlacingError(f"{entry.path} would not be good ({entry.validate}): {output.strip()}")
            os.replace(temporary, path)
            if is_new:
                self._label(str(path))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    def _directory(self, entry: Entry) -> Change | None:
        path, mode = pathlib.Path(entry.path), _mode(entry)
        try:
            found = path.stat() if not self._is_removed(entry.path) else None
        except FileNotFoundError:
            found = None
            if path.is_symlink():
                raise PlacingError(f"{entry.path} is a link that leads nowhere, and a directory is wanted") from None
        if found is not None and not stat.S_ISDIR(found.st_mode):
            raise PlacingError(f"{entry.path} is no directory")
        wanted = (os.geteuid(), os.getegid(), mode)
        had = (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) if found is not None else None
        if had == wanted or entry.path in self._made:
            return None
        if self._check:
            self._made.add(entry.path)
        else:
            path.mkdir(parents=True, exist_ok=True)
            os.chown(path, *wanted[:2])
            path.chmod(mode)
        return Change(entry.path, _attributes(*had) if had else "", _attributes(*wanted))

    def _link(self, entry: Entry) -> Change | None:
        path = pathlib.Path(entry.path)
        former = str(path.readlink()) if path.is_symlink() else ""
        if former == entry.target:
            return None
        if not former and os.path.lexists(path):
            raise PlacingError(f"{entry.path} is no link, and one to {entry.target} is wanted there")
        if not self._check:
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                temporary.symlink_to(entry.target)
                os.replace(temporary, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    temporary.unlink()
        return Change(entry.path, f"link to {former}\n" if former else "", f"link to {entry.target}\n")

    def _absent(self, entry: Entry) -> Change | None:
        """Remove a path; of a link the link goes, never what it leads to."""
        if not self._is_there(entry.path):
            return None
        path = pathlib.Path(entry.path)
        kind = "link" if path.is_symlink() else "directory" if path.is_dir() else "file"
        if not self._check:
            shutil.rmtree(path) if kind == "directory" else path.unlink()
        self._forget(entry.path)
        return Change(entry.path, f"{kind}\n", "")

    def _empty(self, entry: Entry) -> Change | None:
        """A link is neither file nor directory here, whatever it leads to."""
        path = pathlib.Path(entry.path)
        if not self._is_there(entry.path) or path.is_symlink() or not self._is_empty(path):
            return None
        kind = "directory" if path.is_dir() else "file"
        if not self._check:
            path.rmdir() if kind == "directory" else path.unlink()
        self._forget(entry.path)
        return Change(entry.path, f"empty {kind}\n", "")

    def _forget(self, path: str) -> None:
        """Note that a path is removed, or would be."""
        self._removed_paths.add(path)
        self._planned.pop(path, None)
        self._made.discard(path)

    def _is_empty(self, path: pathlib.Path) -> bool:
        if path.is_dir():
            return all(str(inner) in self._removed_paths for inner in path.iterdir())
        # our blocks are still there in check mode
        content = self._read(path)
        return content is not None and not (BLOCK.sub(b"", content) if self._check else content)


def with_block(text: bytes, block: bytes, marker: str) -> bytes:
    """A text in which a block stands between its marks, where it stood or at the end; an empty one is taken out."""
    begin, end = (marker.replace("{mark}", mark).encode() + b"\n" for mark in ("BEGIN", "END"))
    lines = text.splitlines(keepends=True)
    bare = [line.rstrip(b"\r\n") for line in lines]
    marks = [max((n for n, line in enumerate(bare) if line == mark[:-1]), default=None) for mark in (begin, end)]
    place = len(lines)
    if marks[0] is not None and marks[1] is not None:
        place, last = sorted((marks[0], marks[1]))
        del lines[place : last + 1]
    elif not block:
        return text
    if place > 0 and not lines[place - 1].endswith(b"\n"):
        lines[place - 1] += b"\n"
    if block:
        lines[place:place] = [begin, block if block.endswith(b"\n") else block + b"\n", end]
    return b"".join(lines)


def _mode(entry: Entry) -> int:
    mode = entry.mode or OWN_MODES[entry.state]
    if not re.fullmatch("0[0-7]{3,4}", mode):
        raise PlacingError(f"{entry.path}: mode {mode!r} is not of octal digits after a zero, in quotes, as '0644'")
    return int(mode, 8)


def _attributes(uid: int, gid: int, mode: int) -> str:
    return f"owner {uid}:{gid}, mode {mode:04o}\n"


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
