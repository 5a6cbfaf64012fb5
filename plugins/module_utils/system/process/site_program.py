# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program of the site as root, with a bound of its time and of what is read of its output."""

from __future__ import annotations

import os
import pathlib
import selectors
import threading

from ...errors import SiteFault
from . import supervised

OUTPUT_BYTES = 4096
"""What is stored of a program's standard output; the rest is read and thrown away."""
_END_S = 1.0
"""For what is still in the pipe when the program has ended; who left it and writes on is not waited for."""
_ERRORS_AWAY = ("/bin/sh", "-c", 'exec "$0" 2>/dev/null')


def run_site_program(program: pathlib.Path, timeout_s: float) -> tuple[int, str]:
    """Run a program of the site to its end, and return what it wrote first.

    Args:
        program: that only root could have written; it gets no arguments and no input.
        timeout_s: seconds until it is ended with all that it started.

    Returns:
        Its exit status (negative for a signal), and the begin of its standard output, of any characters.

    Raises:
        SiteFault: others than root could have written it; it cannot be run; it had no end.
    """
    try:
        for path in (program, program.parent):
            facts = path.stat()
            # with an ACL the group bits are its mask, so that a right granted there shows here too
            if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & 0o022:
                raise SiteFault(str(path), "can be written by others than root: not run", "chown root, chmod go-w")
        if not program.is_file() or not os.access(program, os.X_OK):
            raise SiteFault(str(program), "is no program that can be run", "chmod a+x")
        read_end, write_end = os.pipe()
        head = bytearray()
        over_fd, close_fd = os.pipe()
        reader = threading.Thread(target=_drain, args=(read_end, over_fd, head), daemon=True)
        with os.fdopen(write_end, "wb", buffering=0) as output:
            reader.start()
            try:
                status, _out = supervised.run([*_ERRORS_AWAY, program], timeout_s=timeout_s, log=output)
            finally:
                os.close(close_fd)
        reader.join(_END_S)
    except OSError as error:
        raise SiteFault(str(program), error.strerror or str(error), "is it there, and can it be run?") from error
    if status is None:
        raise SiteFault(str(program), f"did not end within {timeout_s:.0f} s")
    return status, bytes(head[:OUTPUT_BYTES]).decode("utf-8", "replace")


def _drain(output: int, over: int, head: bytearray) -> None:
    """Read all that comes until every writer has closed it, or until it is over and nothing more is there."""
    os.set_blocking(output, False)
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        selector.register(over, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _events in selector.select()}
            piece = _piece(output) if output in ready else None
            if piece:
                head += piece[: max(0, OUTPUT_BYTES - len(head))]
            if piece == b"" or (over in ready and piece is None):
                break
            if over in ready and len(head) >= OUTPUT_BYTES:
                break
    os.close(output)
    os.close(over)


def _piece(output: int) -> bytes | None:
    try:
        return os.read(output, 1 << 16)
    except BlockingIOError:
        return None
