# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this host can write its logs, and call the site's program for their lines."""

from __future__ import annotations

import os
import pathlib
import re
import stat
import typing as t

from ...state.event_log import LogSettings
from ...wire.health_report import WARN, Finding
from ..state.settings import NodeSettings

MOUNTS = pathlib.Path("/proc/self/mountinfo")
REMOTE = re.compile(r"nfs4?|cifs|smb3|ceph|lustre|beegfs|gpfs|afs|9p|virtiofs|fuse\..+")
"""File systems whose server can keep whoever writes waiting."""
_FOR_ALL = "chmod a+x"


def check_log(settings: NodeSettings, mounts: pathlib.Path = MOUNTS) -> Finding:
    """Check that the log of this host and that of the site can be written, and that the site's program can run.

    Args:
        settings: what the site expects of this node.
        mounts: the kernel's table of what is mounted.
    """
    for problem, remedy in _problems(settings, mounts):
        return Finding("log", WARN, WARN, problem, remedy)
    return Finding("log")


def _problems(settings: NodeSettings, mounts: pathlib.Path) -> t.Iterator[tuple[str, str]]:
    directory = settings.state_dir / "log"
    if why := _unwritable(directory):
        yield f"{directory} {why}: what belongs to no job is logged nowhere", f"install -d -m 700 {directory}"
    yield from _file_problems(settings.log, mounts)
    yield from _program_problems(settings.log)


def _unwritable(directory: pathlib.Path) -> str:
    """Why nothing can be created in a directory, or ""."""
    if not directory.is_dir():
        return "is missing" if not os.path.lexists(directory) else "is no directory"
    return "" if os.access(directory, os.W_OK | os.X_OK) else "cannot be written"


def _file_problems(log: LogSettings, mounts: pathlib.Path) -> t.Iterator[tuple[str, str]]:
    if log.file is None:
        return
    if why := _unwritable(log.file.parent):
        yield f"log_file: {log.file.parent} {why}", f"mkdir {log.file.parent}, or correct log_file in vtorque.yml"
    elif os.path.lexists(log.file) and not stat.S_ISREG(log.file.lstat().st_mode):
        yield f"log_file: {log.file} is no regular file, and is not written", f"rm {log.file}"
    elif kind := _remote_kind(log.file.parent, mounts):
        problem = f"log_file: {log.file} is on {kind}: a server that does not answer holds up each hook"
        yield problem, "name a file on a disk of the host, such as /var/log/vtorque.log"


def _remote_kind(directory: pathlib.Path, mounts: pathlib.Path) -> str:
    """The kind of file system of a directory, where it is of a server; else ""."""
    best, kind, real = "", "", os.path.realpath(directory)
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        fields, _dash, kinds = line.partition(" - ")
        target = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields.split()[4])
        # what was mounted last hides what is below it
        if os.path.commonpath((target, real)) == target and len(target) >= len(best):
            best, kind = target, kinds.split()[0]
    return kind if REMOTE.fullmatch(kind) else ""


def _program_problems(log: LogSettings) -> t.Iterator[tuple[str, str]]:
    if log.program is None:
        return
    try:
        facts = log.program.stat()
        closed = [path for path in log.program.resolve().parents if not path.stat().st_mode & stat.S_IXOTH]
    except OSError as error:
        yield f"log_program: {log.program}: {error.strerror}", "put it there, or correct log_program in vtorque.yml"
        return
    if not stat.S_ISREG(facts.st_mode) or not facts.st_mode & stat.S_IXOTH:
        yield f"log_program: nobody can run {log.program}, as whom it is called", f"{_FOR_ALL} {log.program}"
    elif closed:
        problem = f"log_program: nobody can reach {log.program}, as whom it is called: {closed[-1]} is closed"
        yield problem, f"{_FOR_ALL} {closed[-1]}"
