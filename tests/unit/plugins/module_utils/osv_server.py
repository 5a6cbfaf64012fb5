# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that speaks what OSv documents of its API (modules/httpserver-api/api-doc/listings) and nothing else.

An unknown path is 404, and so is a known one by another method, as routes.cc of OSv has it; a missing or empty
parameter that is required is 400.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
import typing as t
import urllib.parse


class OsvServer(http.server.ThreadingHTTPServer):
    """One guest.

    Attributes:
        environ: as the API shows and changes it.
        commands: what was to be started, decoded.
        threads: whether each thread that was started is over, by its number.
        started: is called with the command; a test's own program.
        missing: what is not in the image, and cannot be started.
        command_line: of the kernel.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.environ: dict[str, str] = {}
        self.commands: list[str] = []
        self.threads: dict[str, bool] = {}
        self.missing: tuple[str, ...] = ()
        self.command_line = "--rootfs=zfs /libhttpserver-api.so"
        self.started: t.Callable[[str, str], None] = lambda _command, _thread: None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self.server_address[1]


class Handler(http.server.BaseHTTPRequestHandler):
    server: OsvServer

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogateescape")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, message: str) -> None:
        self.answer(status, {"message": message, "code": status})

    def handle_call(self) -> None:
        path, _mark, query = self.path.partition("?")
        path = urllib.parse.unquote(path, errors="surrogateescape")
        given = dict(urllib.parse.parse_qsl(query, errors="surrogateescape"))
        if ".." in path:
            return self.refuse(400, "Bad Request")
        path = path.rstrip("/") if len(path) > 1 else path
        call = (self.command, path)
        if call == ("GET", "/os/version"):
            return self.answer(200, "v0.57.0")
        if call == ("GET", "/os/cmdline"):
            return self.answer(200, self.server.command_line)
        if call == ("PUT", "/app"):
            return self._start(given)
        if call == ("GET", "/app/finished"):
            if not given.get("tid"):
                return self.refuse(400, "Missing mandatory parameter 'tid'")
            return self.answer(200, "1" if self.server.threads.get(given["tid"], True) else "0")
        if found := re.fullmatch("/env/([^/]+)", path):
            return self._variable(found[1], given)
        return self.refuse(404, "Not found")

    def _start(self, given: dict[str, str]) -> None:
        if not given.get("command"):
            return self.refuse(400, "Missing mandatory parameter 'command'")
        if (program := given["command"].split(" ")[0].strip('"')) in self.server.missing:
            return self.refuse(500, f"Failed to load object: {program}")
        self.server.commands.append(given["command"])
        thread = str(200 + len(self.server.commands))
        self.server.threads[thread] = False
        self.answer(200, thread)
        return self.server.started(given["command"], thread)

    def _variable(self, name: str, given: dict[str, str]) -> None:
        environ = self.server.environ
        if self.command == "GET" and name in environ:
            return self.answer(200, environ[name])
        if self.command == "GET":
            return self.refuse(400, f"No environment variable {name}")
        if self.command == "DELETE":
            environ.pop(name, None)
            return self.answer(200, "")
        if self.command != "POST":
            return self.refuse(404, "Not found")
        if not given.get("val"):
            return self.refuse(400, "Missing mandatory parameter 'val'")
        environ[name] = given["val"]
        return self.answer(200, "")

    do_GET = do_PUT = do_POST = do_DELETE = handle_call

    def log_message(self, *_arguments: object) -> None:
        """Nothing is said of it."""
