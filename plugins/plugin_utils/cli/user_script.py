# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a script of the user's in the guest of rank 0; started by root's hook, and already the user.

argv            descriptors of the job's standard output and error, and of the word about the end
standard input  the order, one JSON object (`module_utils/job/hooks/user_script.py`)
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import typing as t

from ...module_utils.errors import SiteFault, UserFault, VTorqueError
from ...module_utils.job.batch import registry
from ...module_utils.job.batch.api import BatchSystem
from ...module_utils.job.hooks import user_variables
from ...module_utils.job.request import attached_file
from ...module_utils.job.request.value_types import BadValue, format_value
from ...module_utils.job.shell import session
from ...module_utils.job.shell.environment import JobStart, guest_variables
from ...module_utils.job.shell.lost_guest import GuestLost, LostWatch
from ...module_utils.state import layout
from ...module_utils.state.records import ReadyRecord
from ...module_utils.system import files
from ...module_utils.text import printable
from ...module_utils.time_budget import SERVER_CALL_S

PROLOGUE = "vm_prologue"
TAIL = 2000
UMASK = 0o022


class Output:
    """The job's streams; what was printed last is remembered."""

    def __init__(self, out: int, err: int) -> None:
        self._streams = {1: out, 2: err}
        self._tail = b""

    def write(self, fd: int, data: bytes) -> None:
        """Take what the script prints."""
        self._tail = (self._tail + data)[-TAIL:]
        session.write_all(self._streams[fd], data)

    def complain(self, message: str) -> None:
        """A word of ours to the user, in the job's error file."""
        session.write_all(self._streams[2], f"vtorque: {printable(message)}\n".encode(errors="replace"))

    @property
    def joined(self) -> bool:
        """Return whether both are one file."""
        return os.path.sameopenfile(self._streams[1], self._streams[2])

    @property
    def tail(self) -> str:
        """What was printed last."""
        return self._tail.decode(errors="replace")


def main(argv: t.Sequence[str] | None = None) -> int:
    """Run the script, and say how it ended."""
    out, err, word = map(int, sys.argv[1:4] if argv is None else argv)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    output = Output(out, err)
    order = json.load(sys.stdin)
    answer: dict[str, t.Any]
    try:
        end = _run(order, output)
        answer = {"kind": end.kind, "number": end.number}
    except (GuestLost, session.ConnectionLost, SiteFault) as error:
        answer = {"error": error.to_dict(), "lost": True}
    except VTorqueError as error:
        answer = {"error": error.to_dict()}
    except OSError as error:
        answer = {"error": VTorqueError("it was not run", str(error)).to_dict()}
    os.write(word, json.dumps({**answer, "tail": output.tail}).encode())
    return 0


def _run(order: dict[str, t.Any], output: Output) -> session.End:
    content = _read(order["path"], order["digest"])
    directory = pathlib.Path(order["directory"])
    record = ReadyRecord.from_dict(files.read_json(directory / layout.READY))
    path, system = os.fsencode(order["script"]), registry.open_shell(order["batch_system"])
    known = {os.fsencode(key): os.fsencode(value) for key, value in _variables(order, output).items()}
    start = JobStart(
        guest_variables(system, known, record.guests, record.bare),
        UMASK,
        shell=record.user_shell.encode(),
        script=path,
        line=path + b"\n",
        joined=output.joined,
    )
    with LostWatch(directory) as watch:
        if (lost := watch.read_loss()) is not None:
            raise lost
        message = start.message(content)
        return session.Conversation(record, directory, "batch", message, watch, output.write).run()


def _variables(order: dict[str, t.Any], output: Output) -> dict[str, str]:
    """The job's environment, as far as it can be known here exactly; what is missing is said.

    Raises:
        SiteFault: the batch server is silent before the job has begun; afterwards its epilogue runs all the same.
    """
    listed: dict[str, str] = order["listed"]
    try:
        listed = listed or user_variables.query_variables(_batch(order), order["job_id"])
    except SiteFault as error:
        if order["key"] == PROLOGUE:
            raise
        output.complain(f"{order['key']} runs without the job's own variables (-v, -V): {error}")
    whole, missing = user_variables.exact(listed)
    if missing:
        why = "their values hold what the batch server cannot tell"
        output.complain(f"{order['key']} runs without {', '.join(missing)}: {why}")
    system = registry.open_shell(order["batch_system"])
    return user_variables.merged(whole, order["variables"], system.is_submitted)


def _batch(order: dict[str, t.Any]) -> BatchSystem:
    tools = pathlib.Path(order["tools"])
    return registry.open_commands(order["batch_system"], tools, timeout_s=SERVER_CALL_S)


def _read(path: str, digest: str) -> bytes:
    try:
        content = attached_file.read(path)
    except BadValue as error:
        raise UserFault("it was not run", str(error)) from error
    if attached_file.digest(content) != digest:
        raise UserFault(
            "it was not run", f"{format_value(path)} was changed after the job was submitted", "submit it again"
        )
    return content


if __name__ == "__main__":
    sys.exit(main())
