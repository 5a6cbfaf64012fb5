# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque-node`: one node's part of a job, asked in a line of JSON on standard input and answered in one.

Whose guests are ready may be told of the whole job, by a second line.  With `--early` or `--early-removal` everything
that will be needed is loaded before the request is read.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.node.lifecycle import handover
from ...module_utils.system.process import process_limits, signals
from ...module_utils.wire.messages import JobMap
from ...module_utils.wire.node_command import END_LEFTOVERS
from ..bridge import exclusive_note
from ..bridge.node_settings import LoadPolicy, host_name, policy_loader, settings_of
from ..faststart.mark import EARLY, EARLY_REMOVAL
from . import preload
from .errors import ANSWERED, error_of
from .handlers import KINDS, SECOND, Call, Kind, decoders_of
from .protocol import Answer, decode_request, make_failure, read_line, read_second_line, write_answer

LATER = 19
"""Niceness of what the job's first line does not wait for."""


def main() -> int:
    """Answer one request.

    Returns:
        0: there is an answer, which says whether it went well.
    """
    signals.raise_on_signal()
    # sshd gives root's own; qemu and the job's owner must pass through what is made here
    os.umask(0o022)
    # a caller that went away must not end us in the middle of undoing
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    load = policy_loader()
    if sys.argv[1:] == [EARLY]:
        warm = False
        try:
            warm = load().warm_start
        except VTorqueError:  # it is tried again, and reported, when it is needed
            load = policy_loader()
        preload.load_needed(warm=warm)
    elif sys.argv[1:] == [EARLY_REMOVAL]:
        preload.load_for_removal()
    stream = sys.stdin.buffer
    with contextlib.suppress(BrokenPipeError), handover.CallerEnd() as hold:
        answer = respond(stream, Call(os.environ, load, caller=1, hold=hold))
        write_answer(answer)
        # whoever asked first is believed in what follows
        more = answer["ok"] and (answer["guests"] or "bare" in answer)
        if more and (line := read_second_line(stream, hold.listen_s)):
            joined = respond(io.BytesIO(line), Call(os.environ, load, before=answer), SECOND)
            write_answer(joined)
            if joined["ok"]:
                _note_neighbours(line, load)
    if answer["ok"] and sys.argv[1:2] == [END_LEFTOVERS]:
        from ..bridge.upkeep import leftover_processes  # 4 ms that only the end of a job pays

        leftover_processes.end_leftovers_of_sister(sys.argv[2:], load, host_name())
    return 0


def respond(stream: t.BinaryIO, call: Call, kinds: t.Mapping[str, Kind] | None = None) -> Answer:
    """Return the answer to a request.

    Args:
        stream: one line of it is read.
        call: how it came.
        kinds: of what it may be; None: of what a first line may be.
    """
    table = KINDS if kinds is None else kinds
    try:
        kind, message = decode_request(read_line(stream), decoders_of(table))
        return table[kind].handle(message, call)
    except ANSWERED as problem:
        return make_failure(error_of(problem))


def _note_neighbours(line: bytes, load: LoadPolicy) -> None:
    """Note whether the job that begins has this node for itself; in a process of its own, for our end is waited for."""
    if os.fork() != 0:
        return
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        process_limits.lower_priority(LATER)
        job_map: JobMap = decode_request(line, decoders_of(SECOND))[1]
        policy = load()
        directory = settings_of(policy, host_name()).record_dir(job_map.job_id, job_map.start)
        exclusive_note.note_neighbours(job_map.job_id, job_map.start, policy, host_name(), directory)
    finally:  # nobody hears what else there is to say; without the note nothing will be ended
        os._exit(0)
