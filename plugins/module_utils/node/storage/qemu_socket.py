# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A socket at which a process of the user's is found by qemu, and by nobody else."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import typing as t

from ...errors import SiteFault

PATH_BYTES = 107
"""What fits into the address of a Unix socket."""


@contextlib.contextmanager
def listening(place: pathlib.Path, qemu: tuple[int, int]) -> t.Iterator[socket.socket]:
    """Listen there, until it is handed over.

    Args:
        place: of the socket.
        qemu: uid and gid of qemu, which alone may connect.

    Raises:
        SiteFault: the path is too long for a socket.
    """
    if len(os.fsencode(place)) > PATH_BYTES:
        raise SiteFault(f"socket {place}", f"its path is longer than {PATH_BYTES} bytes", "shorten the server's name")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(place))
        place.chmod(0o600)
        os.chown(place, *qemu)
        one.listen(1)
        yield one
