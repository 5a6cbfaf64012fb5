# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""As whom libvirt runs qemu on this node, kept for when libvirt is silent or has forgotten a guest.

An account's name proves nothing, for the user is a setting of libvirt's (qemu.conf), and the system's directory may
hang.  The owner of a guest's disk says it, while the disk is there and libvirt has not taken it back.  So libvirt's own
word is kept before the first guest is made; like the guests it is gone with a reboot.
"""

from __future__ import annotations

import contextlib
import json

from ...errors import VTorqueError
from ...system import files
from .directories import GONE, unreadable
from .settings import NodeSettings

FILE = "qemu_user.json"


def save_uid(uid: int, settings: NodeSettings) -> None:
    """Keep that guests run as this user; that it cannot be kept stops nothing, for their disks say it too.

    Those before them are kept as well: their guests live on when libvirt is told of another.
    """
    with contextlib.suppress(VTorqueError):
        known = load_uids(settings)
        if uid not in known:
            files.write(settings.run_dir / FILE, json.dumps({"uids": sorted({*known, uid})}))


def load_uids(settings: NodeSettings) -> frozenset[int]:
    """As whom guests were run here since the boot; root, as whom any libvirt may run them, is always among them.

    Raises:
        NodeFault: it is kept, and cannot be read.
    """
    path = settings.run_dir / FILE
    try:
        return frozenset({0, *map(int, files.read_json(path)["uids"])})
    except (*GONE, VTorqueError, KeyError, TypeError, ValueError):
        return frozenset({0})
    except OSError as error:  # others than root's would be taken for nobody's
        raise unreadable(path, error) from error
