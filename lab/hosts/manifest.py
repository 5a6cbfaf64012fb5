# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a file system holds: path, kind, mode, owner and content of everything, to be compared with later."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import pathlib
import stat
import typing as t


def write(root: pathlib.Path, file: pathlib.Path) -> None:
    """Write the manifest of the file system whose root this is, and of no other that is mounted below it."""
    file.write_text(json.dumps(dict(sorted(_entries(root))), indent=0), encoding="utf-8")


def _entries(root: pathlib.Path) -> t.Iterator[tuple[str, str]]:
    device = root.stat().st_dev
    waiting = [root]
    while waiting:
        with os.scandir(waiting.pop()) as found:
            entries = list(found)
        for entry in entries:
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                if facts.st_dev != device:
                    continue
                waiting.append(pathlib.Path(entry.path))
            path = pathlib.Path(entry.path)
            owner = f"{facts.st_uid}:{facts.st_gid}"
            yield f"/{path.relative_to(root)}", f"{stat.filemode(facts.st_mode)} {owner} {_content(path, facts)}"


def _content(path: pathlib.Path, facts: os.stat_result) -> str:
    if stat.S_ISLNK(facts.st_mode):
        return f"-> {path.readlink()}"
    if stat.S_ISREG(facts.st_mode):
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    return ""


def of_new_packages(root: pathlib.Path, before: pathlib.Path) -> frozenset[str]:
    """The paths that belong to packages of Debian which a host did not have yet when this manifest was written."""
    old = json.loads(before.read_text(encoding="utf-8"))
    found = set()
    for listed in (root / "var/lib/dpkg/info").glob("*.list"):
        if f"/{listed.relative_to(root)}" not in old:
            found |= {_merged(root, line) for line in listed.read_text(encoding="utf-8").splitlines()}
    return frozenset(found)


def _merged(root: pathlib.Path, path: str) -> str:
    """Where it is: packages still name some things in /lib, which is a link to /usr/lib."""
    top = path.split("/")[1]
    return f"/usr{path}" if top and (root / top).is_symlink() else path


def compare(
    before: pathlib.Path, after: pathlib.Path, allowed: tuple[str, ...] = (), packaged: t.Container[str] = ()
) -> list[str]:
    """What differs, a line each.

    Args:
        allowed: patterns of paths that may differ (`*` matches any characters, also /).
        packaged: paths that may be new.
    """
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    lines = []
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) == new.get(path) or any(fnmatch.fnmatchcase(path, pattern) for pattern in allowed):
            continue
        if path not in old and path in packaged:
            continue
        kind = "new" if path not in old else "gone" if path not in new else "changed"
        lines.append(f"{kind:<8} {path}  {old.get(path, '')} {'=> ' if kind == 'changed' else ''}{new.get(path, '')}")
    return lines
