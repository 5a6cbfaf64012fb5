# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sister tells the mother superior that a guest of hers is lost: the job's shell runs there."""

from __future__ import annotations

import json
import os
import subprocess
import time
import typing as t

from ...state import event_log
from ...system.clock import Deadline
from ...system.process.environment import ROOT_ENVIRONMENT
from ...system.process.process_limits import WORDS, leash
from ...system.process.processes import ProcessHandle
from ...text import printable
from ...wire.form import to_dict
from ...wire.messages import LostGuest

PAUSES_S = (2.0, 10.0, 60.0)
"""Before it is tried again.  A mother superior that never answers has lost the job anyway."""
ANSWER_S = 60.0
"""For an answer: a mother superior that takes the word and says nothing has not been told."""
ANSWER_LIMIT = 4096
SHOWN = 500


class LossReporter:
    """A command at work that takes the word, and what comes when it fails.

    Args:
        command: an ssh that takes a `LostGuest` on standard input, and writes an answer as `vtorque-node` does.
        lost: which guest.
        log: takes a line for the job's log.
    """

    def __init__(self, command: t.Sequence[str], lost: LostGuest, log: event_log.Log) -> None:
        self._command, self._log = list(command), log
        self._said = json.dumps(to_dict(lost), ensure_ascii=True).encode("ascii") + b"\n"
        self._pauses = iter(PAUSES_S)
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: ProcessHandle | None = None
        self._again_at: float | None = None
        self._until = Deadline.after(ANSWER_S)
        self._begin()

    def _begin(self) -> None:
        self._again_at = None
        self._until = Deadline.after(ANSWER_S)
        try:
            with (
                os.fdopen(os.memfd_create("vtorque-lost"), "w+b") as message_file,
                os.fdopen(os.memfd_create("vtorque-answer"), "w+b") as heard,
            ):
                message_file.write(self._said)
                message_file.seek(0)
                # anything that is written, by it or by what it calls, goes to one place
                self._process = subprocess.Popen(
                    self._command,
                    stdin=message_file,
                    stdout=heard,
                    stderr=heard,
                    cwd="/",
                    env=ROOT_ENVIRONMENT,
                )
                leash(self._process.pid, WORDS)
                self._answer = os.dup(heard.fileno())
            self._ended = ProcessHandle(self._process.pid)
        except OSError as error:
            self._failed(str(error))

    def _failed(self, why: str) -> None:
        pause_s = next(self._pauses, None)
        self._again_at = None if pause_s is None else time.monotonic() + pause_s
        self._log(
            f"the mother superior was not told{'' if pause_s is None else ', it is tried again'}: {why}",
            event_log.WARNING,
        )

    def filenos(self) -> list[int]:
        """Readable when the command has ended."""
        return [self._ended.fileno()] if self._ended is not None else []

    def due_s(self) -> float:
        """Seconds until `go_on` has something to do by itself."""
        if self._process is not None:
            return self._until.left_s()
        return float("inf") if self._again_at is None else max(0.0, self._again_at - time.monotonic())

    def go_on(self) -> None:
        """Look at what has ended, and try again when it is time."""
        if self._process is not None:
            status = self._process.poll()
            if status is not None:
                answer = os.pread(self._answer, ANSWER_LIMIT, 0)
                self.close()
                if status != 0 or b'"ok":true' not in answer:
                    reason = printable(answer.decode(errors="replace").strip()[:SHOWN])
                    self._failed(reason or f"status {status}")
            elif self._until.passed:
                self.close()
                self._failed(f"no answer within {ANSWER_S:.0f} s")
        if self._again_at is not None and time.monotonic() >= self._again_at:
            self._begin()

    def close(self) -> None:
        """Nobody needs the word any more."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            os.close(self._answer)
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.close()
