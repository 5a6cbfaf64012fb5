# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's own scripts in guests, run by their root: before the job, and before the guests go.

Named as Torque names its own: `prologue` and `epilogue` in the guest of rank 0, `prologue.parallel` and
`epilogue.parallel` in the others.  Each node has its own copies, as it has its own hooks.
"""

from __future__ import annotations

import base64
import os
import pathlib
import shlex
import stat

from ...errors import SiteFault
from ...system.clock import Deadline
from ...time_budget import SITE_EPILOGUE_S
from ..state.guest_file import GuestFile
from ..state.settings import EPILOGUE, PROLOGUE, NodeSettings
from .agent import OrderResult, order_all
from .join import channel_to, with_channel

LIMIT = 1 << 18
"""Bytes of a script."""
TOLD = 500
"""Characters of a script's last output that a message repeats."""


def run_prologues(job_id: str, start: int, settings: NodeSettings, deadline: Deadline) -> None:
    """Run the site's prologues in this node's guests of a start, all at the same time.

    Args:
        job_id: of the job.
        start: its start_count.
        settings: NodeSettings of this node.
        deadline: when all must have ended.

    Raises:
        SiteFault: one is not fit to be run, or did not end well; with the last of its output.
        VTorqueError: a guest does not answer.
    """
    for name, done in _run(PROLOGUE, job_id, start, settings, deadline).items():
        if done.status != 0:
            raise SiteFault(
                f"the site's prologue in guest {name}", describe_end(done), f"see {settings.guest_hooks_dir}"
            )


def run_epilogues(job_id: str, start: int, settings: NodeSettings) -> tuple[str, ...]:
    """Run the site's epilogues in this node's guests of a start; they cannot keep the guests from going.

    Returns:
        What went wrong in which guest, as words.

    Raises:
        SiteFault: one is not fit to be run.
        VTorqueError: a guest does not answer any more.
    """
    done = _run(EPILOGUE, job_id, start, settings, Deadline.after(SITE_EPILOGUE_S))
    return tuple(
        f"the site's epilogue in guest {name}: {describe_end(one)}" for name, one in done.items() if one.status != 0
    )


def describe_end(done: OrderResult) -> str:
    """How a script ended, in words."""
    late = "was not done in time" if done.status == 124 else f"ended with status {done.status}"
    return f"{late}: {done.output[-TOLD:]}" if done.output else late


def _run(kind: str, job_id: str, start: int, settings: NodeSettings, deadline: Deadline) -> dict[str, OrderResult]:
    orders = []
    for guest in with_channel(job_id, start, settings):
        script = read_script(settings.guest_script(kind, guest.rank))
        if script is not None:
            orders.append((channel_to(guest, settings), format_script_order(script, job_id, guest, settings)))
    return order_all(orders, deadline) if orders else {}


def read_script(path: pathlib.Path) -> bytes | None:
    """A script of the site's; None: there is none.

    Raises:
        SiteFault: it is not a file that root alone can write, or too long.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SiteFault(f"{path} cannot be read", str(error)) from error
    with os.fdopen(fd, "rb") as stream:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != 0 or facts.st_mode & 0o022:
            raise SiteFault(f"{path} is not run", "it is not a file that root alone can write", f"chmod go-w {path}")
        if facts.st_size > LIMIT:
            raise SiteFault(f"{path} is not run", f"it is longer than {LIMIT} bytes")
        return stream.read(LIMIT)


def format_script_order(script: bytes, job_id: str, guest: GuestFile, settings: NodeSettings) -> str:
    """What the guest's root runs: the script as a program of its own, so that its `#!` line counts.

    Besides what the guest was told (`/etc/vtorque/guest.env`) it finds VTORQUE_RANK, and the job by the batch system's
    variables.
    """
    file = "/run/vtorque-site-hook"
    variables = {**settings.variables_of(job_id), "VTORQUE_RANK": str(guest.rank)}
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    return f"""set -a
. /etc/vtorque/guest.env
{exports}
set +a
printf %s {base64.b64encode(script).decode("ascii")} | base64 -d >{file} && chmod 0700 {file} || exit
umask 022
{file}
status=$?
rm -f {file}
exit $status
"""
