# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers of PCI devices changed, and devices reset: by writes to sysfs that may never return.

Each is done by a child that has nothing of ours open and is not waited for any longer than its deadline: a driver that
does not let go keeps its writer within the kernel, where no signal reaches it, and whoever waited would hang with it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
import typing as t

from ....errors import VTorqueError
from ....system.clock import Deadline
from .inventory import SYS, VFIO, driver_of, is_alive, place_of

_MESSAGE = 500
_DONE = b"done"


def _nothing() -> None:
    pass


def hand_out(address: str, sys: pathlib.Path = SYS, before: t.Callable[[], None] = _nothing) -> Child:
    """Begin to give a device to vfio-pci, from which qemu can take it.

    Args:
        address: of the device.
        sys: where sysfs is.
        before: is done first, by the same child; raises OSError where it fails.
    """

    def work() -> None:
        before()
        _hand_out(address, sys)

    return Child(work, f"device {address} was not given to {VFIO}")


def give_back(address: str, driver: str, sys: pathlib.Path = SYS, before: t.Callable[[], None] = _nothing) -> Child:
    """Begin to reset a device, to prove that it is alive, and to give it to the driver that it had.

    Args:
        address: of the device.
        driver: "": none.
        sys: where sysfs is.
        before: see `hand_out`.
    """

    def work() -> None:
        before()
        _give_back(address, driver, sys)

    return Child(work, f"device {address} did not come back")


def _hand_out(address: str, sys: pathlib.Path) -> None:
    place = place_of(address, sys)
    if driver_of(place) == VFIO:
        return
    _write(place / "driver_override", f"{VFIO}\n")
    _unbind(place, address)
    _write(sys / "bus/pci/drivers_probe", address)
    _expect_driver(place, VFIO)


def _give_back(address: str, driver: str, sys: pathlib.Path) -> None:
    place = place_of(address, sys)
    if driver != VFIO:
        _unbind(place, address)
    if (place / "reset").exists():
        _write(place / "reset", "1")
    if not is_alive(place):
        raise OSError("it answers no more")
    if driver != VFIO:
        _write(place / "driver_override", "\n")
        if driver:
            _write(sys / "bus/pci/drivers_probe", address)
    _expect_driver(place, driver)


def _expect_driver(place: pathlib.Path, driver: str) -> None:
    if (found := driver_of(place)) != driver:
        raise OSError(f"its driver is {found or 'none'} and not {driver or 'none'}")


def _unbind(place: pathlib.Path, address: str) -> None:
    if driver_of(place):
        _write(place / "driver/unbind", address)


def _write(path: pathlib.Path, text: str) -> None:
    """Write in one call, as sysfs wants it, to a file that is there."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)


class Child:
    """A process that does what may hang, and that is left alone when it is late.

    Args:
        work: raises OSError where it fails.
        what: did not happen then.
    """

    def __init__(self, work: t.Callable[[], None], what: str) -> None:
        self._what = what
        self._reading, writing = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            _live(work, writing)
        os.close(writing)

    def wait(self, deadline: Deadline) -> VTorqueError | None:
        """Return why it failed, or did not end in time; None: it is done."""
        try:
            answer = _read_result(self._reading, deadline)
        finally:
            os.close(self._reading)
        if answer is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, os.WNOHANG)  # one within the kernel stays, as whoever forked us will see
            return VTorqueError(
                self._what, f"process {self._pid} has not ended in time: the driver or the device hangs"
            )
        os.waitpid(self._pid, 0)
        why = answer.decode("utf-8", "replace") or "its process was ended"
        return None if answer == _DONE else VTorqueError(self._what, why)


def _read_result(reading: int, deadline: Deadline) -> bytes | None:
    """Return what a child says until its end; None: it has not ended."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    answer = b""
    while poll.poll(deadline.left_s() * 1000):
        part = os.read(reading, _MESSAGE)
        if not part:
            return answer
        answer += part
    return None


def _live(work: t.Callable[[], None], writing: int) -> t.NoReturn:
    """The child's whole life: no lock and no pipe of ours stays open in it, which would never be closed."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)  # a parent's, who would take our signals for their own
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.dup2(writing, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        message = _DONE
        try:
            work()
        except OSError as error:
            message = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}".encode()
        os.write(3, message[:_MESSAGE])
    finally:
        os._exit(0)
