# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest of this user mounts, and what of it this node itself hands to the guest."""

from __future__ import annotations

from ...effects import leaves_nothing
from ...errors import SiteFault
from ...frozen import frozen
from ...site_lists.mounts import Mount, inside, of_the_system
from ...wire.messages import Owner
from ..state.settings import NodeSettings

HOMES = "/home"
"""What `home_export` stands for on the nodes."""
ALWAYS = "nosuid,nodev"


@frozen
class Share:
    """A directory of this node that a guest gets.

    Attributes:
        tag: by which the guest mounts it.
        kind: `virtiofs` or `9p`.
        directory: on this node.
    """

    tag: str
    kind: str
    directory: str


@frozen
class GuestMounts:
    """Both sides of a guest's mounts.

    Attributes:
        mounts: as the guest is told them; the source is an export or a tag.
        shares: what this node hands to it.
    """

    mounts: tuple[Mount, ...] = ()
    shares: tuple[Share, ...] = ()

    @property
    def file_servers(self) -> list[str]:
        """The hosts of whose exports guests mount something, sorted."""
        return sorted({mount.source.partition(":/")[0] for mount in self.mounts if mount.kind == "nfs"})


@leaves_nothing
def plan_mounts(settings: NodeSettings, owner: Owner) -> GuestMounts:
    """What guests of this user mount: their own home and nobody else's, then what the site wants.

    Raises:
        SiteFault: a home or a mount is at a place where none can be.
    """
    wanted = [*_home(settings, owner), *settings.mounts]
    for mount in wanted:
        for other in wanted:
            # whoever may write in the outer one could put a link where the inner one is to come
            if mount is not other and inside(mount.target, other.target):
                why = f"{other.target} is one too, and would hold it"
                raise SiteFault(f"mount {mount.target} in guests", why, "see to mounts in vtorque.yml")
    mounts, shares = [], []
    for number, mount in enumerate(wanted):
        options = ",".join(filter(None, (mount.options, "ro" if mount.kind == "9p" else "", ALWAYS)))
        source = mount.source
        if mount.kind != "nfs":
            shares.append(Share(f"vtorque{number}", mount.kind, mount.source))
            source = f"vtorque{number}"
        mounts.append(Mount(mount.kind, source, mount.target, options))
    return GuestMounts(tuple(mounts), tuple(shares))


def _home(settings: NodeSettings, owner: Owner) -> tuple[Mount, ...]:
    if settings.home_via == "nfs" and settings.home_export is None:
        return ()
    home = owner.home.rstrip("/")
    if of_the_system(owner.home):
        raise SiteFault(f"home {owner.home} of {owner.user}", "is no place of one user", "see to the directory service")
    if settings.home_via == "virtiofs":
        return (Mount("virtiofs", home, owner.home),)
    place = home.removeprefix(f"{HOMES}/") if inside(home, HOMES) else owner.user
    return (Mount("nfs", f"{str(settings.home_export).rstrip('/')}/{place}", owner.home),)
