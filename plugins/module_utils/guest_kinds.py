# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two kinds of guests, and all in which they differ: standard Linux guests, and OSv, whose guest is one process."""

from __future__ import annotations

from .effects import leaves_nothing
from .frozen import frozen


@frozen
class GuestKind:
    """What a stage asks instead of the distribution's name.

    Attributes:
        name: as records keep it; the job finds it in capitals as `DISTRO`.
        seeds: where the templates of its seed lie.
        seed_files: what its seed holds.
        domain: the template of its domain.
        linux: whether it has users, a shell, sshd, mounts, and a root who learns of the job over a channel.
    """

    name: str
    seeds: str
    seed_files: tuple[str, ...]
    domain: str
    linux: bool


SLG = GuestKind("slg", "cloud-init", ("meta-data", "user-data", "network-config"), "domain.xml.j2", True)
OSV = GuestKind("osv", "osv", ("user-data",), "osv/domain.xml.j2", False)
"""OSv reads nothing but `/user-data` of a NoCloud disk (its modules/cloud-init/main.cc)."""
OSV_LAUNCHER = "/usr/lib/vtorque-launcher.so"
"""Where an image of OSv has our program (`templates/osv/launcher.c`)."""
OSV_BASE = "osvbase"
"""The distribution of a base: what images of OSv are composed on (`node/compose/base.py`), and no job runs in."""
KINDS = {kind.name: kind for kind in (SLG, OSV)}
DISTROS = ("debian", "ubuntu", "redhat", "centos", "rocky", "alma", OSV.name)
"""The families of images: a request asks for one, and a record of the pool names one."""


@leaves_nothing
def kind_of(distro: str) -> GuestKind:
    """The kind of a distribution's guests."""
    return OSV if distro in (OSV.name, OSV_BASE) else SLG
