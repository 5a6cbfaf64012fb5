# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image of the user's own, which their guests boot from: what it is, and whether it is the one that was submitted.

Only processes of their own uid open it: at submission, and on each node again when its guests are made.
"""

from __future__ import annotations

import hashlib
import os
import pathlib

from ...effects import leaves_nothing
from ...errors import ImageFault, SiteFault, UserFault, VTorqueError
from ...frozen import frozen
from ...text import printable
from .disk_check import OUT_OF_REACH, open_disk
from .disk_format import READ_BYTES, DiskHeader, read_header

SWITCHED_OFF = "this site does not allow images of one's own (allow_user_images)"


@frozen
class OwnImage:
    """What such an image is.

    Attributes:
        digest: of its size, the time of its last change, and its beginning.  All of it is not read: that would take
            each node as long as a copy, and of who owns the file nothing more is kept away.
    """

    header: DiskHeader
    digest: str


@leaves_nothing
def inspect_image(path: str, max_mib: int) -> OwnImage:
    """What an image of the user's is; for a process of their own uid.

    Args:
        path: absolute.
        max_mib: greatest disk that a guest may see.

    Raises:
        UserFault: it cannot be read, is no disk that stands on nothing else and can boot, or is greater.
        SiteFault: the file is out of reach.
    """
    what = what_of(path)
    try:
        with open_disk(pathlib.Path(path)) as stream:
            facts = os.fstat(stream.fileno())
            header = read_header(stream, facts.st_size, what)
            stream.seek(0)
            head = stream.read(READ_BYTES)
    except ImageFault as error:
        raise UserFault(what, error.why, error.hint) from None
    except OSError as error:
        kind: type[VTorqueError] = SiteFault if error.errno in OUT_OF_REACH else UserFault
        raise kind(what, f"cannot be read: {error.strerror}") from error
    if header.format == "raw" and not header.partitioned:
        raise UserFault(what, "is no qcow2, and no disk with a table of partitions: nothing boots from it")
    if header.virtual_bytes > max_mib << 20:
        had, most = header.virtual_bytes >> 20, max_mib
        raise UserFault(what, f"is a disk of {had} MiB; the site allows {most} MiB (image_max)")
    # microseconds: file servers and their clients need not keep the same figures after them
    stamp = f"{facts.st_size} {facts.st_mtime_ns // 1000} ".encode()
    return OwnImage(header, hashlib.sha256(stamp + head).hexdigest())


@leaves_nothing
def what_of(path: str) -> str:
    """The image, for messages."""
    return f"img={printable(path)}"
