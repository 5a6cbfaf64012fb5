# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process of the batch server."""

from __future__ import annotations

import os
import signal
import sys

from ..shared.loop import Loop
from .requests import answer
from .server import Server, Settings


def serve(settings: Settings) -> int:
    """Run the server until SIGTERM."""
    os.umask(0o022)
    loop = Loop()
    server = Server(settings, loop)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: loop.stop())
    loop.drain(read)
    server.start(answer)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    loop.run()
    return 0
