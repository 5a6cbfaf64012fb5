# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""libvirt's own Python binding, which need not be there, and its loop of events."""

from __future__ import annotations

import contextlib
import threading
import typing as t

from ...errors import NodeFault, SiteFault, VTorqueError

KEEPALIVE_S, KEEPALIVE_COUNT = 5, 3
"""A daemon that is silent for 15 s has lost us: every call in flight then fails, instead of waiting for ever."""
START_HINT = "is libvirtd (or virtqemud) running? journalctl -u libvirtd says more"


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


def open_connection(libvirt: t.Any, uri: str, *, read_only: bool, connect_s: float) -> t.Any:
    """Return a connection; opened in a thread, for a daemon that accepts and never answers would hold us for ever.

    Args:
        libvirt: the module.
        uri: of the daemon.
        read_only: for looking alone.
        connect_s: seconds that it may take to answer.

    Raises:
        NodeFault: it does not answer.
    """
    result: list[t.Any] = []
    function = libvirt.openReadOnly if read_only else libvirt.open

    def work() -> None:
        try:
            result.append(function(uri))
        except libvirt.libvirtError as error:
            result.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(min(connect_s, threading.TIMEOUT_MAX))
    if not result:
        raise NodeFault(f"libvirt at {uri}", f"gave no answer within {connect_s:.1f} s", START_HINT, cause="libvirt")
    if isinstance(result[0], libvirt.libvirtError):
        raise NodeFault(f"libvirt at {uri}", text_of(result[0]), START_HINT, cause="libvirt") from result[0]
    # drivers inside the process (test) have no connection to keep alive
    with contextlib.suppress(libvirt.libvirtError):
        result[0].setKeepAlive(KEEPALIVE_S, KEEPALIVE_COUNT)
    return result[0]


def fault_of(lib: t.Any, error: t.Any, what: str, *, alive: t.Callable[[], object]) -> VTorqueError:
    """Return the fault that an error of libvirt's is; whose it is follows from its code.

    Args:
        lib: the module.
        error: a `libvirtError`.
        what: was asked of it, and at which URI.
        alive: says whether the connection lives; a closed one cannot be asked.
    """
    code, domain = error.get_error_code(), error.get_error_domain()
    if code in (lib.VIR_ERR_XML_ERROR, lib.VIR_ERR_XML_DETAIL, lib.VIR_ERR_XML_INVALID_SCHEMA):
        return SiteFault(what, text_of(error), "see the template domain.xml.j2")
    silent = (lib.VIR_ERR_NO_CONNECT, lib.VIR_ERR_INVALID_CONN, lib.VIR_ERR_RPC)
    # a lost connection shows as "internal error: client socket is closed", told apart by where it arose
    if code in silent or domain in (lib.VIR_FROM_RPC, lib.VIR_FROM_REMOTE) or not alive():
        return NodeFault(what, text_of(error), START_HINT, cause="libvirt")
    denied = "ermission denied" in str(error)
    hint = "qemu's user must be able to read it: see user and dynamic_ownership in qemu.conf" if denied else ""
    return VTorqueError(what, text_of(error), hint)


def text_of(error: t.Any) -> str:
    """Return what an error of libvirt's says, on one line."""
    return " ".join(str(error).split())[:1000]
