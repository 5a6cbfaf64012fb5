# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque-shell`: what Torque runs as the job's shell (`qsub -S`).

    argv            standard input                  what runs in the guest
    []              `<script> <arguments>`          the user's login shell, with that line on its standard input
    []              a terminal (qsub -I)            the user's login shell, on a terminal
    [-c, COMMAND]   a terminal (qsub -I -x)         the user's login shell, with -c COMMAND

The exit status is the job's.  When nothing was run in the guest it is 1 (`NOTHING_RUN`), when a guest was lost or the
connection broke after the job had begun 69 (`LOST`); standard error says so in lines that begin with `vtorque: `.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import resource
import signal
import stat
import sys
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.guest_kinds import KINDS
from ...module_utils.job.shell import session, start_record
from ...module_utils.job.shell.environment import (
    JobStart,
    changes,
    display_of,
    guest_variables,
    limits_here,
    read_environ,
)
from ...module_utils.job.shell.lost_guest import GuestLost, LostWatch
from ...module_utils.state import shell_message
from ...module_utils.state.records import ReadyRecord, RefusalRecord
from ...module_utils.text import printable

NOTHING_RUN = 1
LOST = 69
ENVIRONMENT_FD = 3
LINE_LIMIT = 1 << 20


class Refused(VTorqueError):
    """Root decided that this start runs nothing.

    Attributes:
        lines: what more there is to say.
    """

    def __init__(self, record: RefusalRecord) -> None:
        super().__init__(f"this job did not run: {record.what}", record.why, record.hint)
        self.lines = record.lines


def main(argv: t.Sequence[str] | None = None) -> int:
    """Run the job in its guest, or say why not.

    Returns:
        The exit status; a job that a signal killed is died after, not returned from.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        end = _run(arguments)
    except GuestLost as error:
        return _say(error, LOST, error.lines)
    except session.ConnectionLost as error:
        return _say(error, LOST)
    except Refused as error:
        return _say(error, NOTHING_RUN, error.lines)
    except VTorqueError as error:
        return _say(error, NOTHING_RUN)
    except OSError as error:
        return _say(VTorqueError("nothing was run", str(error)), NOTHING_RUN)
    if end.kind == "signal":
        _die_of(end.number)
    return end.number


def _run(arguments: list[str]) -> session.End:
    job = _environment()
    job_id = job.get(b"PBS_JOBID", b"").decode(errors="replace")
    if not job_id:
        raise VTorqueError(
            "nothing was run", "this program is the shell of batch jobs, started by the batch system and not by hand",
            "submit a job with vsub",
        )  # fmt: skip
    directory, record = start_record.find(job_id)
    if isinstance(record, RefusalRecord):
        raise Refused(record)
    variables = guest_variables(job, record.guests, record.bare)
    if not KINDS[record.guests[0].kind].linux:
        return _in_osv(record, directory, job, variables)
    start = JobStart(
        variables, _umask(), limits_here(), directory=job.get(b"PBS_O_INITDIR", b""), shell=record.user_shell.encode()
    )
    command = _command(arguments)
    interactive = os.isatty(0)
    if command and not interactive:
        raise VTorqueError("nothing was run", "a command without a terminal is not how the batch system starts jobs")
    with LostWatch(directory) as watch:
        if (lost := watch.lost()) is not None:
            raise VTorqueError("nothing was run", f"{lost.what}: {lost.why}", "; ".join(lost.lines))
        display = display_of(job) if interactive else ""
        if changed := changes(job, variables, x11=bool(display)):
            shell_message.say(directory, f"of the job's variables {changed}")
        if interactive:
            start = dataclasses.replace(start, command=command, x11=bool(display))
            return _interactive(record, directory, start, watch, display)
        return _batch(record, directory, start, watch)


def _in_osv(
    record: ReadyRecord, directory: t.Any, job: dict[bytes, bytes], variables: dict[bytes, bytes]
) -> session.End:  # fmt: skip
    from ...module_utils.job.request import osv_script  # 3 ms (6 % of what the shell loads) that other jobs do not pay
    from ...module_utils.job.shell import osv_session  # as above

    if os.isatty(0):
        raise VTorqueError("nothing was run", "OSv has no shell and no terminal: submit a batch job")
    line, path, script = _script()
    argv = osv_script.read(script, line.partition(b"\n")[0][len(path) :])
    given = osv_session.variables_for(variables, record.user)
    if words_of := "; ".join(filter(None, (changes(job, variables), osv_session.dropped(variables, given)))):
        shell_message.say(directory, f"of the job's variables {words_of}")
    with LostWatch(directory) as watch:
        return osv_session.Run(record, directory, watch).run(argv, given)


def _batch(record: ReadyRecord, directory: t.Any, start: JobStart, watch: LostWatch) -> session.End:
    line, path, script = _script()
    joined = os.path.sameopenfile(1, 2)  # qsub -j: the MOM opens the one file twice
    message = dataclasses.replace(start, script=path, line=line, joined=joined).message(script)
    return session.Conversation(record, directory, "batch", message, watch, early=True).run()


def _script() -> tuple[bytes, bytes, bytes]:
    """What the batch system says on standard input, the path of the script in it, and what that holds."""
    line = _read_all(0, LINE_LIMIT)
    path = line.partition(b"\n")[0].partition(b" ")[0]
    if not path.startswith(b"/"):
        raise VTorqueError("nothing was run", "the batch system named no script on standard input")
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - bytes, which pathlib does not take
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise VTorqueError("nothing was run", f"{os.fsdecode(path)!r} is not a file")
            script = stream.read()
    except OSError as error:
        raise VTorqueError("nothing was run", f"the job's script cannot be read: {error}") from error
    return line, path, script


def _interactive(record: ReadyRecord, directory: t.Any, start: JobStart, watch: LostWatch, display: str) -> session.End:
    brought = session.Conversation(record, directory, "bring", start.message(b""), watch).run()
    term = start.variables.get(b"TERM", b"").decode(errors="replace")
    status = session.session(record, directory, brought.words, watch, term=term, display=display)
    return session.End("exit", str(status))


def _command(arguments: list[str]) -> bytes:
    if not arguments:
        return b""
    if len(arguments) == 2 and arguments[0] == "-c" and arguments[1]:
        return os.fsencode(arguments[1])
    raise VTorqueError("nothing was run", "neither the arguments of a batch job nor those of an interactive one")


def _environment() -> dict[bytes, bytes]:
    """What the launcher put aside; empty when somebody started this without it."""
    try:
        block = base64.b64decode(_read_all(ENVIRONMENT_FD, 1 << 26))
        os.close(ENVIRONMENT_FD)
    except (OSError, ValueError):
        return {}
    return read_environ(block)


def _read_all(fd: int, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < limit and (data := os.read(fd, 1 << 16)):
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _say(error: VTorqueError, status: int, more: t.Sequence[str] = ()) -> int:
    text = f"vtorque: {error.what}" + (f": {error.why}" if error.why else "")
    for line in (text, *(f"  {line}" for line in (error.hint, *more) if line)):
        os.write(2, f"{printable(line)}\n".encode(errors="replace"))
    return status


def _die_of(number: int) -> None:
    """End as the job's own shell ended, so that the batch system records the signal; without a core of ours."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
