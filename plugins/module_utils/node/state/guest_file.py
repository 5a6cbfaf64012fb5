# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest's directory says of it, from before its domain begins."""

from __future__ import annotations

import hashlib
import json
import pathlib

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...frozen import frozen
from ...guest_kinds import SLG
from ...system import files
from ...wire.form import to_dict
from ...wire.messages import GuestSpec, NodePart

FILE = "guest.json"


@frozen
class GuestFile:
    """Root wrote it.

    Attributes:
        spec_digest: of all that the guest is made of.
        boot_id: the boot of the node in which it was made (`system.process.process_id.boot_id`); "": it does not say.
        kind: of `guest_kinds.KINDS`.
        ram_mib: its memory; 0: it does not say.
        region_mib: of the region that it shares, on the first guest of its start on the node alone: there is one.
        checkpoint: whether a checkpoint of its job may be requested.
    """

    rank: int
    slot: int
    name: str
    mac: str
    uuid: str
    token: str
    owner_uid: int
    spec_digest: str
    boot_id: str = ""
    kind: str = SLG.name
    ram_mib: int = 0
    region_mib: int = 0
    checkpoint: bool = False


@leaves_nothing
def digest_of(spec: GuestSpec, part: NodePart) -> str:
    """Return the digest of all that a guest is made of; keys are part of it."""
    text = json.dumps([to_dict(spec), to_dict(part.owner), to_dict(part.additions)], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def write_guest_file(directory: pathlib.Path, guest_file: GuestFile) -> None:
    """Say of a guest's directory what it is for.

    Raises:
        VTorqueError: it was not written.
    """
    files.write_json(directory / FILE, guest_file)


@leaves_nothing
def read_guest_file(directory: pathlib.Path) -> GuestFile | None:
    """None: whoever made the directory did not come far enough to say what it is for."""
    try:
        return GuestFile(**files.read_json(directory / FILE))
    except (FileNotFoundError, NotADirectoryError, TypeError, VTorqueError):
        return None
