# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user at a terminal."""

from __future__ import annotations

import contextlib
import os
import re
import signal

from tests.screen import SIZE, OnTerminal

from .conftest import CHECKOUT, LAB, Site

_OPEN: list[Terminal] = []


def hang_up() -> None:
    """End what runs on terminals that a failed test has left open: later tests would wait for it to go."""
    while _OPEN:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(_OPEN.pop().process.pid, signal.SIGKILL)


class Terminal(OnTerminal):
    """A terminal on the front end with one command on it.

    Args:
        size: rows and columns.
        user: whose it is; None: root's.
    """

    def __init__(self, site: Site, *arguments: str, size: tuple[int, int] = SIZE, user: str | None = "alice") -> None:
        self.site = site
        who = ["--user", user] if user else []
        super().__init__([*LAB, "on", "fe", *who, "--", *arguments], size, cwd=CHECKOUT, env=site.environment)
        _OPEN.append(self)

    def close(self) -> int:
        """See `OnTerminal.close`."""
        status = super().close()
        _OPEN.remove(self)
        return status

    @property
    def job_id(self) -> str:
        """The job of the session."""
        found = re.search(self.site.batch.session_id, self.seen)
        assert found, self.seen
        return found[1]

    def end_session(self) -> int:
        """Read until the terminal closes, and return the session's exit status when its job is over."""
        status = self.close()
        facts = self.site.wait_state(self.job_id, "C")
        return status if self.site.batch.session_tells else int(facts["exit_status"])
