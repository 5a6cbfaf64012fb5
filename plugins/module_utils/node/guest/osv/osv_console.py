# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console of a guest of OSv, for the shell of its job: what the program prints is printed there."""

from __future__ import annotations

import os
import stat

from ....errors import VTorqueError
from ....state import layout
from ....system import acl
from ...state.guest_file import GuestFile
from ...state.settings import NodeSettings


def hand_over(guest: GuestFile, job_id: str, start: int, settings: NodeSettings) -> None:
    """Let the job's user, and nobody else but root and qemu, connect to the console of their guest.

    The socket lies where other guests have their channel, in a directory of root's; the start's run directory gets a
    link to it, by which the shell finds it.

    Args:
        guest: the guest.
        job_id: of its job.
        start: its start_count.
        settings: NodeSettings of this node.

    Raises:
        VTorqueError: the socket is not there, or is none.
    """
    path = settings.agent_socket(guest.slot)
    link = layout.run_directory(job_id, start, settings.run_dir) / layout.CONSOLE
    what = f"the console of guest {guest.name}"
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                raise VTorqueError(what, f"{path} is not a socket")
            acl.let_use(fd, guest.owner_uid)
        finally:
            os.close(fd)
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    except OSError as error:
        raise VTorqueError(what, str(error), "the guest may have ended") from error
