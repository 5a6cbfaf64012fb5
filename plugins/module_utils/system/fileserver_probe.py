# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the file server of a directory answers: a process that reads there while it hangs waits in the kernel."""

from __future__ import annotations

import pathlib
import subprocess

from ..effects import leaves_nothing
from ..errors import SiteFault
from ..time_budget import POOL_PROBE_S
from .clock import Deadline
from .process.environment import TOOL_ENVIRONMENT
from .process.processes import ProcessHandle

READER = ("/bin/ls", "-U", "-A", "--")
"""Reads a directory.  A program, as the caller may have threads, beside which nothing may fork."""


@leaves_nothing
def silent_pool(pool: pathlib.Path, late: str) -> SiteFault | None:
    """Return the fault of an image pool that held up what was not done in time.

    Args:
        pool: the image pool.
        late: what was not done in time.

    Returns:
        None: it answers, or cannot be asked.
    """
    try:
        if answers(pool, POOL_PROBE_S):
            return None
    except OSError:
        return None
    hint = "see to its file server; vmgr doctor says on which nodes it is silent"
    return SiteFault(f"the image pool {pool} gives no answer", late, hint)


def answers(directory: pathlib.Path, timeout_s: float) -> bool:
    """Read a directory, in a process that may hang there instead of this one.

    A hard NFS mount holds whoever reads it until its server is back (nfs(5)); of signals only SIGKILL is heard.

    Args:
        directory: a mount, or below one.
        timeout_s: seconds to wait.

    Returns:
        False: there was no answer in this time.  That it cannot be read is an answer.

    Raises:
        OSError: there is no process to be had.
    """
    # nothing of ours is open in who may hang: no lock, and no pipe for whose end somebody waits
    reader = subprocess.Popen(
        [*READER, str(directory)],
        env=TOOL_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    with ProcessHandle(reader.pid) as child:
        answered = child.wait(Deadline.after(timeout_s))
        if not answered:
            # some wait so that not even this ends them: then it is init's
            child.kill(Deadline.after(0.1))
        reader.poll()
    return answered
