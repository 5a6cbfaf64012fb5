# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process of the user's is told that serves a guest's qemu."""

from __future__ import annotations

import pathlib

from ...frozen import frozen
from ...system.clock import Deadline
from ...wire.messages import Owner
from ..state.settings import NodeSettings
from ..system.cpus import Cores


@frozen
class Serving:
    """Whom it serves, and on which terms.

    Attributes:
        guest: the guest's directory, for its socket and its log.
        owner: as whom it runs.
        settings: NodeSettings of this node.
        qemu: uid and gid of qemu, which alone may connect.
        deadline: of the making.
        cores: those of this node on which it stays; (): all.
    """

    guest: pathlib.Path
    owner: Owner
    settings: NodeSettings
    qemu: tuple[int, int]
    deadline: Deadline
    cores: Cores = ()
