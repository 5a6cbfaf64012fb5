# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook for one hook, begun before it is known what there is to play: loading takes its time."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import typing as t

from ...effects import leaves_nothing
from ...system import files, supervised
from ...system.environment import ROOT_ENVIRONMENT

SETTINGS = "ansible.cfg"
"""In the run directory of the node, for all its jobs: Ansible reads it when it begins to load."""
HOME = "ansible"
"""Ansible's own directory there."""


class Player:
    """The process that plays.

    Args:
        command: the call of `cli/play.py`.
        run_dir: root's directory of what is true while jobs run.
    """

    @leaves_nothing
    def __init__(self, command: t.Sequence[str], run_dir: pathlib.Path) -> None:
        self._command = tuple(command)
        self._run_dir = run_dir
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> pathlib.Path:
        """Ansible's settings."""
        return self._run_dir / SETTINGS

    @leaves_nothing
    def ready_to_begin(self) -> bool:
        """Are there settings of an earlier job, which are most probably ours too?"""
        return self._process is None and self.settings.is_file()

    def begin(self, told: t.Mapping[str, str] | None = None, inherited: t.Sequence[int] = ()) -> None:
        """Let it load with the settings of the last job; without any, it is begun later.

        Until there is something to play, it has only the time that nobody else wants: what decides when the guests
        begin to boot loads beside it.

        Args:
            told: what it finds in its environment.
            inherited: descriptors that it gets under their numbers.
        """
        with contextlib.suppress(OSError):
            if self.ready_to_begin():
                self._process = supervised.begin(self._command, {**self._environment(), **(told or {})}, inherited)
                _schedule(self._process.pid, os.SCHED_IDLE)

    @property
    def loading(self) -> bool:
        """Has it begun, and not ended?"""
        return self._process is not None and self._process.poll() is None

    def settle(self, text: str) -> None:
        """See to it that it plays with these settings.

        Raises:
            VTorqueError: they were not written.
        """
        with contextlib.suppress(OSError):
            if self.settings.read_text(encoding="utf-8") == text:
                return
        self.end()
        files.write(self.settings, text)

    def play(
        self, arguments: t.Sequence[str], told: t.Mapping[str, str], *, timeout_s: float, log: t.IO[bytes]
    ) -> int | None:
        """Play, and wait for its end.

        Args:
            arguments: of ansible-playbook.
            told: what it finds in its environment.
            timeout_s: seconds.
            log: where its output goes.

        Returns:
            Its exit status, negative for a signal; None: it was ended at its deadline.

        Raises:
            OSError: it could not be started.
        """
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            _schedule(process.pid, os.SCHED_OTHER)
            # the log by way of our own descriptor: a name could lead elsewhere by now
            place = f"/proc/{os.getpid()}/fd/{log.fileno()}"
            said = json.dumps({"arguments": list(arguments), "environment": dict(told), "log": place})
            code = supervised.finish(process, timeout_s=timeout_s, stdin=said.encode())
            if code != 0:
                self._tidy(process.pid)
            return code
        environment = {**self._environment(), **told}
        return supervised.run([*self._command, *arguments], timeout_s=timeout_s, log=log, environment=environment)[0]

    def end(self) -> None:
        """See to it that nothing of it is left; done again it does nothing."""
        process, self._process = self._process, None
        if process is not None:
            supervised.abandon(process)
            self._tidy(process.pid)

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def _environment(self) -> dict[str, str]:
        # Python tries by a file whether it may write where temporary ones go, and that is /tmp without a word
        return {
            **ROOT_ENVIRONMENT,
            "ANSIBLE_CONFIG": str(self.settings), "VTORQUE_HOOK": str(os.getpid()), "TMPDIR": str(self._run_dir / HOME),
        }  # fmt: skip

    def _tidy(self, pid: int) -> None:
        """What Ansible would have removed itself: its temporary files, in a directory with its number."""
        # the number, then eight letters and digits (tempfile.mkdtemp): exact, for others play too
        for path in (self._run_dir / HOME).glob(f"ansible-local-{pid}{'?' * 8}"):
            shutil.rmtree(path, ignore_errors=True)


def _schedule(pid: int, policy: int) -> None:
    """Of its one thread; that the system refuses changes only when it is ready."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, policy, os.sched_param(0))
