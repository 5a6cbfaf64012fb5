# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque-shell`: what the batch system runs as the job's shell; how it does that is `job/batch/<system>`.

The exit status is the job's.  When nothing was run in the guest it is 1 (`NOTHING_RUN`), when a guest was lost or the
connection broke after the job had begun 69 (`LOST`); standard error says so in lines that begin with `vtorque: `.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import resource
import signal
import stat
import sys
import time
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.guest_kinds import KINDS
from ...module_utils.job.batch.registry import launchers_system, open_shell
from ...module_utils.job.shell import job_signals, session, start_record
from ...module_utils.job.shell.environment import (
    JobStart,
    changes,
    guest_variables,
    limits_here,
    read_environ,
)
from ...module_utils.job.shell.lost_guest import GuestLost, LostWatch
from ...module_utils.state import shell_message
from ...module_utils.state.records import ReadyRecord, RefusalRecord
from ...module_utils.text import printable

if t.TYPE_CHECKING:
    from ...module_utils.job.batch.contract import ShellAdapter
    from ...module_utils.job.batch.own_job import JobScript

NOTHING_RUN = 1
LOST = 69
ENVIRONMENT_FD = 3
ATTACH_S, ATTACH_PAUSE_S = 300.0, 2.0
"""For the guest of a job that has returned to give a session, and between two tries."""


class JobRefused(VTorqueError):
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
        return _print_error(error, LOST, error.lines)
    except session.ConnectionLost as error:
        return _print_error(error, LOST)
    except JobRefused as error:
        return _print_error(error, NOTHING_RUN, error.lines)
    except VTorqueError as error:
        return _print_error(error, NOTHING_RUN)
    except OSError as error:
        return _print_error(VTorqueError("nothing was run", str(error)), NOTHING_RUN)
    if end.kind == "signal":
        _end_by_signal(end.number)
    return end.number


def _run(arguments: list[str]) -> session.End:
    job = _environment()
    system = open_shell(launchers_system(os.environ))
    job_id = system.job_id_of(job)
    if not job_id:
        raise VTorqueError(
            "nothing was run",
            "this program is the shell of batch jobs, started by the batch system and not by hand",
            "submit a job with vsub",
        )
    directory, record = start_record.read_start_record(system.own_job(job), job_id)
    if isinstance(record, RefusalRecord):
        raise JobRefused(record)
    where = system.start_directory(job, record.directory)
    job |= system.rename_directories(job, where)
    variables = guest_variables(system, job, record.guests, record.bare)
    if not KINDS[record.guests[0].kind].linux:
        return _in_osv(system, arguments, record, directory, job, variables)
    limits = limits_here(locked=any(guest.rdma for guest in record.guests))
    start = JobStart(variables, _umask(), limits, directory=where, shell=record.user_shell.encode())
    interactive = os.isatty(0)
    command = system.read_command(arguments) if interactive else b""
    with LostWatch(directory) as watch:
        if (lost := watch.read_loss()) is not None:
            raise VTorqueError("nothing was run", f"{lost.what}: {lost.why}", "; ".join(lost.lines))
        display = system.display_of(job) if interactive else ""
        if changed := changes(system, job, variables, x11=bool(display)):
            shell_message.send_message(directory, f"of the job's variables {changed}")
        if interactive:
            start = dataclasses.replace(start, command=command, x11=bool(display))
            return _interactive(record, directory, start, watch, display)
        return _batch(system.read_script(arguments), record, directory, start, watch)


def _in_osv(
    system: ShellAdapter,
    arguments: list[str],
    record: ReadyRecord,
    directory: t.Any,
    job: dict[bytes, bytes],
    variables: dict[bytes, bytes],
) -> session.End:
    from ...module_utils.job.shell import osv_session  # 3 ms (6 % of what the shell loads) that other jobs do not pay

    if os.isatty(0):
        raise VTorqueError("nothing was run", "OSv has no shell and no terminal: submit a batch job")
    script = system.read_script(arguments)
    argv = osv_session.read_program(script)
    given = osv_session.variables_for(variables, record.user)
    if words_of := "; ".join(
        filter(None, (changes(system, job, variables), osv_session.describe_dropped(variables, given)))
    ):
        shell_message.send_message(directory, f"of the job's variables {words_of}")
    with LostWatch(directory) as watch:
        return osv_session.Run(record, directory, watch).run(argv, given)


def _batch(script: JobScript, record: ReadyRecord, directory: t.Any, start: JobStart, watch: LostWatch) -> session.End:
    joined = os.path.sameopenfile(1, 2)  # of one file: it is open twice
    start = dataclasses.replace(start, script=script.path, line=script.line, joined=joined)
    if not script.by_login_shell:
        start = dataclasses.replace(start, execute=True, arguments=script.arguments)
    start = dataclasses.replace(start, detached=record.detached)
    message = start.message(script.content)
    if record.returned:
        for fd in (1, 2):
            _empty(fd)
        return _attach(record, directory, watch)
    with contextlib.ExitStack() as stack:
        witness = stack.enter_context(contextlib.closing(job_signals.Witness())) if start.execute else None
        return session.Conversation(record, directory, "batch", message, watch, early=True, witness=witness).run()


def _attach(record: ReadyRecord, directory: t.Any, watch: LostWatch) -> session.End:
    """Follow a job that has returned with its guest, where it is, and has begun long ago.

    A file server has gone on since the checkpoint was taken, and takes nothing over the connection of then.  The kernel
    of the guest begins a new one after three minutes (nfs(5): timeo=600, retrans=2), and a login waits for it, too.
    """
    until = time.monotonic() + ATTACH_S
    while True:
        talk = session.Conversation(record, directory, "attach", b"", watch)
        try:
            return talk.run()
        except session.NotBegun:
            if talk.signals or time.monotonic() > until:
                raise
        time.sleep(ATTACH_PAUSE_S)


def _empty(fd: int) -> None:
    """Take back what an earlier start of the job printed: its guest prints all of it again, from the first line on."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)


def _interactive(record: ReadyRecord, directory: t.Any, start: JobStart, watch: LostWatch, display: str) -> session.End:
    brought = session.Conversation(record, directory, "bring", start.message(b""), watch).run()
    term = start.variables.get(b"TERM", b"").decode(errors="replace")
    status = session.session(record, directory, brought.text, watch, term=term, display=display)
    return session.End("exit", str(status))


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


def _print_error(error: VTorqueError, status: int, more: t.Sequence[str] = ()) -> int:
    text = f"vtorque: {error.what}" + (f": {error.why}" if error.why else "")
    for line in (text, *(f"  {line}" for line in (error.hint, *more) if line)):
        os.write(2, f"{printable(line)}\n".encode(errors="replace"))
    return status


def _end_by_signal(number: int) -> None:
    """End as the job's own shell ended, so that the batch system records the signal; without a core of ours."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
