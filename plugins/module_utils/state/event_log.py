# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log: levels, components, one form of a line that nobody else can forge, and where each line goes.

A line about a job goes to the job's log, whose owner may read it.  What belongs to no job goes to the system log or to
hooks.log.  Each of them goes to the site's own file too, if there is one (`log_file`), and to the site's own program
(`log_program`) from a level on.

This is not the standard library's `logging`: it costs each hook and each worker 2 ms of processor time more (measured,
Python 3.11), for handlers, records and locks that a line to a descriptor needs none of.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import syslog
import time
import typing as t

from ..effects import leaves_nothing
from ..frozen import frozen
from ..system import files
from ..system.process.environment import TOOL_ENVIRONMENT
from ..text import printable
from ..time_budget import LOG_PROGRAM_GRACE_S, LOG_PROGRAM_S

TRACE, DEBUG, INFO, WARNING, ERROR = LEVELS = ("trace", "debug", "info", "warning", "error")
"""From the most detailed to the gravest."""
JOB_LEVELS = (INFO, DEBUG, TRACE)
"""What a job's owner may choose for the job's own log."""
COMPONENTS: t.Mapping[str, str] = {
    "prologue": "the start of a job on its first host",
    "epilogue": "the end of a job on its first host, and what begins it on the others",
    "verdict": "what a failure means for the job and its node, and hooks that failed",
    "worker": "the process that owns the guests of a start on a node",
    "builder": "the creation of guests, step by step",
    "readiness": "guests that become ready",
    "placement": "cores, NUMA cells and pages of guests",
    "cache": "copies of images on a node",
    "record": "the way of records to the front end",
    "suspension": "jobs that are suspended and resumed",
    "move": "guests that go to another node",
    "metrics": "samples of what guests use",
    "sweep": "removal of what belongs to no living start",
    "health": "nodes that are degrading, and are well again",
}
"""The parts of the product that a line can come from, and what each is about."""
FORM = f"COMPONENT LEVEL, a component ({', '.join(COMPONENTS)}) and its level ({', '.join(LEVELS)})"
TEXT, JSON = FORMATS = ("text", "json")

MORE = "  | "
"""Before each further line of what is logged at one time: none but the first can look as if it had a time."""
LONGEST = 16 << 10
"""Characters of a line for the site's file and program."""
CALLS, CALLS_S = 10, 60.0
"""So often in so many seconds a process calls the site's program at most."""
NOBODY = "65534"
"""The user and the group of the site's program: Linux's own overflow ids, called nobody everywhere."""
MISSED = "VTORQUE_LOG_MISSED"
_PRIORITIES = {
    TRACE: syslog.LOG_DEBUG,
    DEBUG: syslog.LOG_DEBUG,
    INFO: syslog.LOG_NOTICE,
    WARNING: syslog.LOG_WARNING,
    ERROR: syslog.LOG_ERR,
}


class Log(t.Protocol):
    """Takes a line for a job's log."""

    def __call__(self, text: str, level: str = INFO, component: str = "") -> None:
        """Log a text at a level, of a component; "": that of the process."""


@frozen
class LogSettings:
    """What the site's policy decides of the log.

    Attributes:
        levels: lines `component level`.
        file: gets the lines of all jobs and programs of this host; None: there is none.
        form: of the lines of `file`: `text` or `json`.
        program: of the site, called for each line from `program_level` on; None: there is none.
        program_level: one of LEVELS.
    """

    levels: tuple[str, ...] = ()
    file: pathlib.Path | None = None
    form: str = TEXT
    program: pathlib.Path | None = None
    program_level: str = ERROR


class _Current:
    """What this process logs, and as whom."""

    settings = LogSettings()
    levels: t.Mapping[str, str] = {}
    program = "vtorque"
    component = "worker"
    job = ""
    job_level = INFO
    calls: t.ClassVar[list[float]] = []
    missed = 0


def read_level(line: str) -> str:
    """Return the one spelling of a line of `log_levels`.

    Args:
        line: `component level`.

    Raises:
        ValueError: it is none; its text says what one is.
    """
    fields = line.split()
    if len(fields) != 2 or fields[0] not in COMPONENTS or fields[1] not in LEVELS:
        raise ValueError(FORM)
    return " ".join(fields)


@leaves_nothing
def configure(
    settings: LogSettings | None = None,
    *,
    program: str | None = None,
    component: str | None = None,
    job: str | None = None,
    job_level: str | None = None,
) -> None:
    """Set what this process and its children log from now on; what is None stays.

    Args:
        settings: the site's.
        program: as which the lines are logged.
        component: of lines that name none.
        job: the job that the lines are about, `""` for none.
        job_level: what the job's log shows: one of JOB_LEVELS.
    """
    if settings is not None:
        _Current.settings = settings
        _Current.levels = dict(t.cast("tuple[str, str]", tuple(line.split())) for line in settings.levels)
    _Current.program = _Current.program if program is None else program
    _Current.component = _Current.component if component is None else component
    _Current.job = _Current.job if job is None else job
    _Current.job_level = _Current.job_level if job_level is None else job_level


def is_logged(level: str, component: str = "") -> bool:
    """Return whether the job's log has lines of this level; for those who would work for the text of a line."""
    least = _level_of(component)
    if _Current.job_level != INFO:
        least = min(least, _Current.job_level, key=LEVELS.index)
    return _rank(level) >= _rank(least)


def write(log: t.IO[bytes] | int, text: str, level: str = INFO, component: str = "") -> None:
    """Write a line to a log, if its component has this level there; the site's file and program get it too.

    All that is logged goes through here: much of it holds words of users, of guests and of other nodes.

    Args:
        log: open to be added to, or its descriptor.
        text: of any characters; those that do not print become `?`, and tabs blanks.  Of several lines (a traceback)
            the further ones are marked.
        level: one of LEVELS.
        component: one of COMPONENTS; "": that of the process.

    Raises:
        OSError: the log was not written.
    """
    try:
        if is_logged(level, component):
            line = format_text(text, level, component)
            if isinstance(log, int):
                os.write(log, line)
            else:
                log.write(line)
    finally:
        _pass_on(text, level, component)


def note(log: t.IO[bytes] | int, text: str, level: str = INFO, component: str = "") -> None:
    """Write a line as `write` does; that it cannot be written stops nothing."""
    with contextlib.suppress(OSError):
        write(log, text, level, component)


def report(text: str, level: str = INFO, component: str = "") -> None:
    """Send a line that belongs to no job's log to the system log, and to the site's file and program.

    Args:
        text: as for `write`.
        level: one of LEVELS.
        component: one of COMPONENTS; "": that of the process.
    """
    if _rank(level) >= _rank(_level_of(component)):
        syslog.syslog(_PRIORITIES[level], printable(text))
    _pass_on(text, level, component)


def add(path: pathlib.Path, text: str, level: str = INFO, component: str = "") -> None:
    """Write a line as `write` does, to a log of this host that is named.

    Args:
        path: of the log; its directory is made.
        text: as for `write`.
        level: one of LEVELS.
        component: one of COMPONENTS; "": that of the process.

    Raises:
        OSError, VTorqueError: the log was not written.
    """
    try:
        if _rank(level) >= _rank(_level_of(component)):
            files.make_directory(path.parent)
            append(path, format_text(text, level, component, with_job=True))
    finally:
        _pass_on(text, level, component)


def format_text(text: str, level: str, component: str = "", *, with_job: bool = False) -> bytes:
    """Return a line: time, host, program with its process, level, component, perhaps the job, and the text.

    Args:
        text: as for `write`.
        level: one of LEVELS.
        component: one of COMPONENTS; "": that of the process.
        with_job: name the job, where the file has lines of several.

    Returns:
        One line or several, the last ended.
    """
    lines = [printable(line.expandtabs()) for line in text.rstrip("\n").split("\n")]
    job = f" {printable(_Current.job)}" if with_job and _Current.job else ""
    head = f"{_host()} {_Current.program}[{os.getpid()}] {level} {component or _Current.component}{job}:"
    text = f"\n{MORE}".join(lines)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {head} {text}\n".encode(errors="replace")


def format_json(text: str, level: str, component: str = "") -> bytes:
    """Return a line of JSON: time, host, program, pid, level, component, job, message.

    Args:
        text: as for `write`; further lines stay in it.
        level: one of LEVELS.
        component: one of COMPONENTS; "": that of the process.
    """
    lines = [printable(line.expandtabs()) for line in text.rstrip("\n").split("\n")]
    fields = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": _host(),
        "program": _Current.program,
        "pid": os.getpid(),
        "level": level,
        "component": component or _Current.component,
        "job": printable(_Current.job),
        "message": "\n".join(lines),
    }
    return f"{json.dumps(fields)}\n".encode()


def _host() -> str:
    return os.uname().nodename.partition(".")[0]


def _rank(level: str) -> int:
    return LEVELS.index(level)


def _level_of(component: str) -> str:
    return _Current.levels.get(component or _Current.component, INFO)


def _pass_on(text: str, level: str, component: str) -> None:
    """To what the site has of its own; nobody waits for it, and that it fails stops nothing."""
    settings = _Current.settings
    if _rank(level) < _rank(_level_of(component)):
        return
    if settings.file is not None:
        line = (
            format_json(text[:LONGEST], level, component)
            if settings.form == JSON
            else format_text(text[:LONGEST], level, component, with_job=True)
        )
        with contextlib.suppress(OSError):
            append(settings.file, line, mode=0o640)
    if settings.program is not None and _rank(level) >= _rank(settings.program_level):
        _call(settings.program, format_json(text[:LONGEST], level, component))


def append(path: pathlib.Path, line: bytes, *, mode: int = 0o600) -> None:
    """Add to a file that may be renamed at any time, and is created anew then.

    Args:
        path: never followed as a link; a pipe or a socket that nobody reads is not waited for.
        line: written as a whole.
        mode: of a file that is created.

    Raises:
        OSError: it was not written.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _call(program: pathlib.Path, line: bytes) -> None:
    """Start the site's program as nobody, in a session of its own and without anybody who waits for it.

    It is the child of a child that has ended, so that nobody has to reap it; timeout(1) ends it.
    """
    now = time.monotonic()
    _Current.calls[:] = [at for at in _Current.calls if at > now - CALLS_S]
    if len(_Current.calls) >= CALLS:
        _Current.missed += 1
        return
    _Current.calls.append(now)
    limits = ("-k", f"{LOG_PROGRAM_GRACE_S:.0f}", f"{LOG_PROGRAM_S:.0f}")
    user = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    command = ("setsid", "-f", "env", "-C", "/", "setpriv", *user, "timeout", *limits, str(program))
    with contextlib.suppress(OSError):
        descriptor = os.memfd_create("vtorque-log")  # a pipe would want a reader
        try:
            os.write(descriptor, line)
            os.lseek(descriptor, 0, os.SEEK_SET)
            pid = os.posix_spawn(
                f"/usr/bin/{command[0]}",
                command,
                {**TOOL_ENVIRONMENT, MISSED: str(_Current.missed)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, descriptor, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsigmask=(),
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
            os.waitpid(pid, 0)  # setsid forks, and ends at once
        finally:
            os.close(descriptor)
        _Current.missed = 0
