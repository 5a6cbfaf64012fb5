# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In the guest, as root: what makes a booted image the template of guests, and a restored one a guest of its own.

The node's seed of a template starts it (`/etc/vtorque/warm.env` holds the template's token).  It takes away what no two
guests may share, reports on the serial console that the guest may be saved, and waits at the channel to its node.  Each
guest that is restored goes on from there:

  the node  hello WORD
  we        vtorque-agent TOKEN WORD
  the node  warm SECONDS BYTES, then that many bytes: the first order
  we        STATUS OUTPUT            0: it was carried out whole; 1 and why not, in base64

The order is refused whole, or carried out from its first line to its last; after a step that failed the guest is of no
use, and its node removes it.  Then the guest does what a cold boot does last: network, identity, `ready`.

Python's standard library alone, from release 3.9 on.  Everything is imported before the guest is saved.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess

from .channel import Channel, open_port, serve
from .guest import WARM_ENV, Guest
from .start import GUEST_ENV, Start
from .system import StepError
from .template import Template

CONSOLES = ("ttyS0", "ttyAMA0", "hvc0")


def report(guest: Guest, line: str) -> None:
    """Write a whole line on the serial console."""
    for name in CONSOLES:
        try:
            descriptor = os.open(guest.path(f"dev/{name}"), os.O_WRONLY | os.O_NOCTTY)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENXIO, errno.EIO, errno.ENODEV):
                continue
            raise
        with os.fdopen(descriptor, "wb", buffering=0) as console:
            console.write(f"\r\n{line}\r\n".encode())
        return


def main(guest: Guest) -> int:
    """Make a template of this guest; after the restore, a guest.

    Returns:
        The exit status: 1 when no guest came of it.
    """
    token = guest.environment(WARM_ENV)["VTORQUE_TOKEN"]
    try:
        Template(guest).settle()
        descriptor = open_port(guest)
    except (OSError, StepError, subprocess.SubprocessError) as error:
        report(guest, f"vtorque-failed {token} {' '.join(str(error).split())}")
        return 1
    report(guest, f"vtorque-warm {token}")
    try:
        order = serve(Channel(descriptor), token, guest)
    except StepError:
        return 1
    os.close(descriptor)
    try:
        start = Start(guest, order)
        lease = start.begin()
    except (OSError, StepError, subprocess.SubprocessError) as error:
        report(guest, f"vtorque-failed {start_token(guest)} warm start: {' '.join(str(error).split())}")
        return 1
    start.go_on(lease)
    return 0


def start_token(guest: Guest) -> str:
    """Return the token of the start, with which its node takes our lines for this guest's."""
    with contextlib.suppress(OSError, ValueError):
        return guest.environment(GUEST_ENV)["VTORQUE_TOKEN"]
    return "-"
