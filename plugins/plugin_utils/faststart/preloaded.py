# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook for one hook, begun before it is known which playbook is to run: loading takes its time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.job.hooks.ansible_process import PlaybookCall, PlaybookRunner
from ...module_utils.system import files
from ...module_utils.system.process import supervised


class PreloadedRunner(PlaybookRunner):
    """A runner whose process may load before there is a playbook to run; a context manager."""

    @leaves_nothing
    def __init__(self, *given: t.Any, **named: t.Any) -> None:
        super().__init__(*given, **named)
        self._process: subprocess.Popen[bytes] | None = None

    @leaves_nothing
    def ready_to_begin(self) -> bool:
        """Return whether there are settings of an earlier job, which are most probably ours too."""
        return self._process is None and self.settings.is_file()

    def begin(
        self,
        variables: t.Mapping[str, str] | None = None,
        inherited: t.Sequence[int] = (),
        *,
        idle: bool = True,
    ) -> None:
        """Let it load with the settings of the last job; without any, it is begun later.

        Args:
            variables: what it finds in its environment.
            inherited: descriptors that it gets under their numbers.
            idle: until there is a playbook to run, it has only the time that nobody else wants: what decides when the
                guests begin to boot loads beside it.
        """
        with contextlib.suppress(OSError):
            if self.ready_to_begin():
                self._process = supervised.begin(self._command, {**self._environment(), **(variables or {})}, inherited)
                if idle:
                    _schedule(self._process.pid, os.SCHED_IDLE)

    @property
    def loading(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._process is not None and self._process.poll() is None

    def apply_settings(self, text: str) -> None:
        """See to it that playbooks run with these settings: one that has loaded with others is ended."""
        if not self.has_settings(text):
            self.end()
            files.write(self.settings, text)

    def run(self, call: PlaybookCall) -> int | None:
        """Run a playbook as every runner, by the process that has loaded where there is one and it may be used."""
        if call.plain:
            self.end()
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return super().run(call)
        _schedule(process.pid, os.SCHED_OTHER)
        # the log by way of our own descriptor: a name could lead elsewhere by now
        place = f"/proc/{os.getpid()}/fd/{call.log.fileno()}"
        text = json.dumps({"arguments": list(call.arguments), "environment": dict(call.variables), "log": place})
        code = supervised.finish(process, timeout_s=call.timeout_s, stdin=text.encode(), unwanted=call.unwanted)
        self._remove_scratch()
        if code != 0:
            self._tidy(process.pid)
        return code

    def end(self) -> None:
        """See to it that nothing of it is left; done again it does nothing."""
        process, self._process = self._process, None
        if process is not None:
            supervised.abandon(process)
            self._remove_scratch()
            self._tidy(process.pid)

    def __enter__(self) -> PreloadedRunner:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()


def _schedule(pid: int, policy: int) -> None:
    """Set the scheduling of a process of one thread; a refusal of the system only delays when it is ready."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, policy, os.sched_param(0))
