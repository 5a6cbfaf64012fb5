# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first order that a guest gets after a warm start: who it is, before anything else may run there.

Its form is in docs/developer/wire-formats.md.  The files are those that cloud-init would write after a cold start.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import secrets
import time
import typing as t

from ...errors import SiteFault, VTorqueError
from ...system.clock import Deadline
from .agent import Channel, order_all

VERSION = 1
ENTROPY_BYTES = 64
_FILE = re.compile(
    r'- \{path: (?P<path>"(?:[^"\\]|\\.)*"), owner: "root:root", permissions: "(?P<mode>0[0-7]{3})", '
    r'encoding: b64, content: "(?P<content>[A-Za-z0-9+/=]*)"\}'
)
"""A file, a line, as `user-data.j2` writes it."""


@dataclasses.dataclass(frozen=True, slots=True)
class GuestFileText:
    """A file that a guest is given.

    Attributes:
        mode: four octal digits.
        path: absolute, without blanks.
        content: in base64.
    """

    mode: str
    path: str
    content: str

    @property
    def digest(self) -> str:
        """Return a digest of the whole order."""
        return hashlib.sha256(f"{self.mode} {self.content}".encode()).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Who a guest is to be.

    Attributes:
        machine_id: 32 hexadecimal digits.
        boot_id: a UUID.
        instance_id: cloud-init's.
        name_servers: addresses.
        search_domains: of its resolver.
    """

    hostname: str
    mac: str
    machine_id: str
    boot_id: str
    instance_id: str
    name_servers: tuple[str, ...] = ()
    search_domains: tuple[str, ...] = ()


def files_of(user_data: str) -> tuple[GuestFileText, ...]:
    """Return the files that cloud-init would write.

    Args:
        user_data: of the seed.

    Raises:
        SiteFault: a line that should be a file is none.
    """
    found = []
    for line in user_data.splitlines():
        if not line.startswith("- {path:"):
            continue
        match = _FILE.fullmatch(line.rstrip())
        path = json.loads(match["path"]) if match else ""
        if match is None or not re.fullmatch(r"/[^\x00-\x20\x7f]+", path):
            raise SiteFault("template cloud-init/user-data.j2", "has a file in a form that no first order takes")
        found.append(GuestFileText(match["mode"], path, match["content"]))
    return tuple(found)


def format_first_order(identity: Identity, files: t.Iterable[GuestFileText], there: t.Mapping[str, str]) -> str:
    """Return the text of the order, with randomness of its own.

    Args:
        identity: who the guest is to be.
        files: that it is to have.
        there: digests of those that its template has, by their paths.
    """
    lines = [
        f"version {VERSION}",
        f"entropy {base64.b64encode(secrets.token_bytes(ENTROPY_BYTES)).decode('ascii')}",
        f"clock {time.time():.6f}",
        f"machine_id {identity.machine_id}",
        f"boot_id {identity.boot_id}",
        f"hostname {identity.hostname}",
        f"mac {identity.mac}",
        f"instance_id {identity.instance_id}",
        *(f"name_server {address}" for address in identity.name_servers),
        *(f"search_domain {name}" for name in identity.search_domains),
        *(f"file {one.mode} {one.path} {one.content}" for one in files if there.get(one.path) != one.digest),
        "end",
    ]
    return "".join(f"{line}\n" for line in lines)


def give(channel: Channel, order: str, deadline: Deadline) -> None:
    """Give a guest its first order.

    Args:
        channel: with the template's token, which the guest still has.
        order: its text.
        deadline: when it must have obeyed.

    Raises:
        VTorqueError: it did not, or does not answer.
    """
    done = order_all([(channel, order)], deadline, verb="warm ")[channel.name]
    if done.status != 0:
        why = done.output[-300:] or f"status {done.status}"
        raise VTorqueError(f"guest {channel.name}", f"could not obey its first order: {why}")
