# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OSv's REST API, as far as a job needs it (OSv: modules/httpserver-api/api-doc/listings, api/{app,env}.cc).

What answers is a guest, in which its user does what they like: an answer is bounded in time and size, its form is
strict, and a redirection is no answer.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import typing as t
import urllib.parse

from .errors import VTorqueError
from .slow_libraries import load_library
from .text import printable

PORT = 8000
ANSWER = 1 << 16
"""Bytes of an answer that are read."""
CALL_S = 10.0
SHOWN = 200
SPECIAL = {"\\": "\\\\", '"': '\\"'}
"""Within the quotes of OSv's command line (core/commands.cc)."""


class OsvFault(VTorqueError):
    """The API did not do what it was asked.

    Attributes:
        status: of its answer; 0: there was none, or none that can be read.
    """

    def __init__(self, what: str, why: str = "", hint: str = "", *, status: int = 0) -> None:
        super().__init__(what, why, hint)
        self.status = status


class Rest:
    """The API of one guest; a connection for each call.

    Args:
        address: the guest's.
        port: where its API listens.
        call_s: seconds for one call, all of it.
    """

    def __init__(self, address: str, *, port: int = PORT, call_s: float = CALL_S) -> None:
        self.address = address
        self._port = port
        self._call_s = call_s

    def version(self) -> str:
        """OSv's version."""
        return self._text("GET", "/os/version")

    def command_line(self) -> str:
        """The kernel's command line."""
        return self._text("GET", "/os/cmdline")

    def variable(self, name: str) -> str | None:
        """A variable of the environment; None: it is not set."""
        status, body = self._call("GET", f"/env/{_quoted(name)}")
        return None if status == 400 else self._read(f"GET /env/{name}", status, body)

    def set_variable(self, name: bytes | str, value: bytes | str) -> None:
        """Set a variable of the environment; the API knows no empty value."""
        self._text("POST", f"/env/{_quoted(name)}?val={_quoted(value)}")

    def start(self, argv: t.Sequence[str]) -> str:
        """Start a program in a thread; the thread's number."""
        thread = self._text("PUT", f"/app/?command={_quoted(command_line(argv))}")
        if not re.fullmatch("[1-9][0-9]{0,19}", thread):
            raise OsvFault(f"PUT /app/ at {self.address}", f"{thread[:SHOWN]!a} is not the number of one thread")
        return thread

    def finished(self, thread: str) -> bool:
        """Return whether a thread has ended."""
        answer = self._text("GET", f"/app/finished?tid={_quoted(thread)}")
        if answer not in ("0", "1"):
            raise OsvFault(f"GET /app/finished at {self.address}", f"{answer[:SHOWN]!a} is neither 0 nor 1")
        return answer == "1"

    def _text(self, method: str, path: str) -> str:
        status, body = self._call(method, path)
        return self._read(f"{method} {path.partition('?')[0]}", status, body)

    def _read(self, what: str, status: int, body: bytes) -> str:
        what = f"{what[:SHOWN]} at {self.address}"
        text = body.decode("utf-8", "replace")
        if status != 200:
            raise OsvFault(what, f"status {status}: {text[:SHOWN]!a}", status=status)
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, str):
            raise OsvFault(what, f"{text[:SHOWN]!a} is not a string of JSON")
        return answer

    def _call(self, method: str, path: str) -> tuple[int, bytes]:
        http_client = load_library("http.client")
        what = f"{method} {path.partition('?')[0][:SHOWN]} at {self.address}"
        connection = http_client.HTTPConnection(self.address, self._port, timeout=self._call_s)
        # a peer that sends a byte now and then would never meet the timeout of a single read
        over = threading.Timer(self._call_s, _break_off, [connection])
        over.daemon = True
        over.start()
        try:
            connection.request(method, path, headers={"Connection": "close"})
            answer = connection.getresponse()
            body = answer.read(ANSWER + 1)
            if len(body) <= ANSWER and answer.length:
                raise http_client.IncompleteRead(b"", answer.length)
        except (OSError, ValueError, http_client.HTTPException) as error:
            raise OsvFault(what, f"no answer: {printable(str(error))[:SHOWN] or type(error).__name__}") from None
        finally:
            over.cancel()
            connection.close()
        if len(body) > ANSWER:
            raise OsvFault(what, f"an answer of more than {ANSWER} bytes")
        return answer.status, body


def _break_off(connection: t.Any) -> None:
    """End a call from another thread: whoever reads is told the end."""
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _quoted(text: bytes | str) -> str:
    """Any bytes within a path or a query."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return urllib.parse.quote_from_bytes(data, safe="")


def command_line(argv: t.Sequence[str]) -> str:
    """Words as OSv's command line, every one in quotes.

    In quotes, too, OSv takes what follows a `$` for the name of a variable, to the word's end.
    """
    return " ".join('"' + "".join(SPECIAL.get(c, c) for c in word) + '"' for word in argv)
