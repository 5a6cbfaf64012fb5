# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A probe whether our guest of OSv answers at an address: it knows the token of its seed, and nobody else does."""

from __future__ import annotations

import os
import secrets
import threading

from ....errors import VTorqueError
from ....osv_rest import Rest
from ....system.clock import Deadline

TOKEN = "VTORQUE_TOKEN"  # noqa: S105 - its name
"""The variable in which the seed leaves it (`templates/osv/user-data.j2`)."""


class OsvProbe:
    """One question to one address; as `ssh_probe.SshProbe`."""

    def __init__(self, token: str, address: str, timeout_s: float) -> None:
        self.address = address
        self.deadline = Deadline.after(timeout_s + 1.0)
        self._token = token
        self._rest = Rest(address, call_s=timeout_s)
        self._answer = ""
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._request_key, daemon=True)
        self._thread.start()

    def _request_key(self) -> None:
        try:
            version = self._rest.version()
            found = self._rest.variable(TOKEN)
            if found is None:
                self._answer = f"OSv {version[:40]!a} answers, and has no token yet"
            else:
                self._answer = "right" if secrets.compare_digest(found.encode(), self._token.encode()) else "wrong"
        except VTorqueError as error:
            self._answer = f"{error.what}: {error.why}"
        finally:
            os.close(self._writing)

    def fileno(self) -> int:
        """Readable when there is an answer."""
        return self._reading

    def answer(self) -> str | None:
        """`right`, `wrong`, or words for "not yet"; None while there is none."""
        if self._thread.is_alive():
            if not self.deadline.passed:
                return None
            return "its API did not answer in time"
        self.end()
        return self._answer

    def end(self) -> None:
        """Nobody listens any more; what still asks ends by itself."""
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1
