# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""libvirt's own Python binding, which need not be there, and its loop of events."""

from __future__ import annotations

import threading
import typing as t

from ...errors import NodeFault


def load_libvirt() -> t.Any:
    """Return the module.

    Raises:
        NodeFault: it is not installed.
    """
    try:
        import libvirt  # 16 ms; where no guests are made the library need not be there
    except ImportError as error:
        raise NodeFault(
            "libvirt's Python binding is missing",
            str(error),
            "install python3-libvirt, and make the venv with --system-site-packages",
            cause="libvirt",
        ) from error
    return libvirt


class EventLoop:
    """libvirt's own event loop, in a thread, once a process; it must run before a connection is opened."""

    lock = threading.Lock()
    thread: threading.Thread | None = None

    @classmethod
    def start(cls, libvirt: t.Any) -> None:
        """Start it, unless it runs.

        Args:
            libvirt: the module.
        """
        with cls.lock:
            if cls.thread is not None:
                return
            # without a handler libvirt prints every error on standard error, which belongs to the job
            libvirt.registerErrorHandler(lambda _context, _error: None, None)
            libvirt.virEventRegisterDefaultImpl()
            cls.thread = threading.Thread(target=cls._run, args=(libvirt,), name="libvirt-events", daemon=True)
            cls.thread.start()

    @staticmethod
    def _run(libvirt: t.Any) -> None:
        while libvirt.virEventRunDefaultImpl() == 0:
            pass
