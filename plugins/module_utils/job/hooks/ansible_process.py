# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook for one hook."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import typing as t

from ...effects import leaves_nothing
from ...frozen import frozen
from ...system import files
from ...system.process import supervised
from ...system.process.environment import ROOT_ENVIRONMENT
from .playbook_call import HOOK, PLAIN

SETTINGS = "ansible.cfg"
"""In the run directory of the node, for all its jobs: Ansible reads it when it begins to load."""
HOME = "ansible"
"""Ansible's own directory there."""


@frozen
class PlaybookCall:
    """One call of ansible-playbook.

    Attributes:
        arguments: of ansible-playbook.
        variables: what it finds in its environment.
        timeout_s: seconds.
        log: where its output goes.
        plain: run ansible-playbook itself (`fast_start` of the site).
        unwanted: ends it when it says so.
    """

    arguments: t.Sequence[str]
    variables: t.Mapping[str, str]
    timeout_s: float
    log: t.IO[bytes]
    plain: bool = False
    unwanted: supervised.Unwanted | None = None


class PlaybookRunner:
    """Runs playbooks, each in a process of its own.

    Args:
        command: the call of `cli/run_playbook.py`.
        run_dir: root's directory of what is true while jobs run.
    """

    @leaves_nothing
    def __init__(self, command: t.Sequence[str], run_dir: pathlib.Path) -> None:
        self._command = tuple(command)
        self._run_dir = run_dir

    @property
    def settings(self) -> pathlib.Path:
        """Ansible's settings."""
        return self._run_dir / SETTINGS

    def has_settings(self, text: str) -> bool:
        """Return whether these are the settings that are there."""
        with contextlib.suppress(OSError):
            return self.settings.read_text(encoding="utf-8") == text
        return False

    def apply_settings(self, text: str) -> None:
        """See to it that playbooks run with these settings.

        Raises:
            VTorqueError: they were not written.
        """
        if not self.has_settings(text):
            files.write(self.settings, text)

    def run(self, call: PlaybookCall) -> int | None:
        """Run a playbook, and wait for its end.

        Args:
            call: of ansible-playbook.

        Returns:
            Its exit status, negative for a signal; None: it was ended at its deadline.

        Raises:
            OSError: it could not be started.
        """
        command = [*self._command, *((PLAIN,) if call.plain else ()), *call.arguments]
        environment = {**self._environment(), **call.variables}
        code = supervised.run(
            command, timeout_s=call.timeout_s, log=call.log, environment=environment, unwanted=call.unwanted
        )[0]
        self._remove_scratch()
        if code != 0:
            self._tidy_ended()
        return code

    @property
    def _scratch(self) -> pathlib.Path:
        """Where what this process starts has its temporary files.

        ansible-core 2.21 has a socket of `multiprocessing` there, in a directory that stays where Python does not come
        to its own end.  Its name is one of Ansible's own, so that it goes with these if this process is killed.
        """
        return self._run_dir / HOME / f"ansible-local-{os.getpid()}_scratch"

    def _remove_scratch(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _environment(self) -> dict[str, str]:
        # Python tries by a file whether it may write where temporary ones go, and that is /tmp without a word
        self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            **ROOT_ENVIRONMENT,
            "ANSIBLE_CONFIG": str(self.settings),
            HOOK: str(os.getpid()),
            "TMPDIR": str(self._scratch),
        }

    def _tidy_ended(self) -> None:
        """Remove the temporary files of every Ansible that has ended, whatever its process id was."""
        for path in (self._run_dir / HOME).glob("ansible-local-*"):
            pid = path.name.removeprefix("ansible-local-")[:-8]
            if pid.isdigit() and not pathlib.Path("/proc", pid).exists():
                shutil.rmtree(path, ignore_errors=True)

    def _tidy(self, pid: int) -> None:
        """Remove what Ansible would have removed itself: its temporary files, in a directory with its process id."""
        # the number, then eight letters and digits (tempfile.mkdtemp): exact, for playbooks of others run too
        for path in (self._run_dir / HOME).glob(f"ansible-local-{pid}{'?' * 8}"):
            shutil.rmtree(path, ignore_errors=True)
