# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job's connection to its guest, without one: what the guest does not say."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell import session
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.lost_guest import LostWatch
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import ReadyGuest, ReadyRecord
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process_id import ProcessId

GUEST = ReadyGuest(0, "v1-1", "n1", "10.0.0.1")
RECORD = ReadyRecord("1.th", 1, "alice", ProcessId(1, 1), "boot", (GUEST,), "")


def test_guest_that_hangs_after_a_session_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: t.Sequence[str], **_how: object) -> t.NoReturn:
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(session, "_run_session", lambda *_words: 255)
    monkeypatch.setattr(session, "WORD_S", 0.0)
    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(session.ConnectionLost):
        session.session(RECORD, pathlib.Path("/run"), "/tmp/vtorque.1", LostWatch(pathlib.Path("/run")), term="xterm")
