# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of the user's as root gets it: read by a process that is the user, and only if it is what was submitted."""

from __future__ import annotations

import os
import typing as t

from ...errors import SiteFault, UserFault
from ...system.process import supervised
from ...time_budget import USER_FILE_READ_S
from ...wire.messages import Owner
from ..batch.shared import owner_process
from ..request import attached_file
from ..request.value_types import format_value

DD = "/bin/dd"
WORDS = 300


def read(key: str, path: str, digest: str, owner: Owner, *, limit: int, become: t.Sequence[str] | None = None) -> bytes:
    """The content of a file that a request names.

    Args:
        key: of the request, for messages.
        path: absolute; opened with the user's rights alone, and without waiting for a writer.
        digest: of what it held at submission.
        owner: the job's user.
        limit: bytes; of more nothing is read.
        become: the call that becomes the user; setpriv, unless a test says otherwise.

    Raises:
        UserFault: it cannot be read, or is not what was submitted.
        SiteFault: whoever has it does not answer.
    """
    what = f"{key} {format_value(path)}"
    command = [
        *(become or owner_process.become(owner.uid, owner.gid, (group.gid for group in owner.groups))),
        DD,
        f"if={path}",
        "iflag=nonblock,fullblock",
        f"bs={limit + 1}",
        "count=1",
        "status=none",
    ]
    with os.fdopen(os.memfd_create("said"), "w+b") as answer_file:
        status, content = supervised.run(command, timeout_s=USER_FILE_READ_S, log=answer_file, capture=True)
        answer_file.seek(0)
        answer = answer_file.read(WORDS).decode(errors="replace").strip()
    if status is None:
        raise SiteFault(
            what, f"could not be read in {USER_FILE_READ_S:.0f} s", "does the file server answer on this node?"
        )
    if status != 0:
        raise UserFault(what, f"cannot be read on this node: {format_value(answer.rpartition(': ')[2], WORDS)}")
    if attached_file.digest(content) != digest:
        raise UserFault(what, "was changed after the job was submitted", "submit it again")
    return content
