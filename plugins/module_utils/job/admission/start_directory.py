# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the directory in which a job would start is there in its guest."""

from __future__ import annotations

import os

from ...frozen import frozen
from ..config.parameters import Policy


def home_is_shared(policy: Policy) -> bool:
    """Return whether the guest sees what lies in the user's home.  Else it has an empty one."""
    return policy.vm_nfs_home is not None or policy.home_via == "virtiofs"


def covered(policy: Policy, home: str) -> tuple[str, ...]:
    """The directories of the cluster that guests have, each with all that is below it.

    Args:
        policy: the site's configuration.
        home: the user's.
    """
    places = [home] if home_is_shared(policy) else []
    if policy.vm_nfs_ws is not None:
        places.append("/workspace")
    if policy.vm_nfs_opt is not None:
        places.append("/opt-hpc")
    places += [line.split()[1] for line in policy.mounts if len(line.split()) > 1]
    if "/workspace" in places and "/scratch" not in places:
        # a link to it in every guest
        places.insert(places.index("/workspace") + 1, "/scratch")
    return tuple(places)


def is_below(path: str, places: tuple[str, ...]) -> bool:
    """Return whether a path is one of these directories, or in one of them."""
    path = os.path.normpath(path)
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in map(os.path.normpath, places))


def objection(directory: str, policy: Policy, home: str) -> str:
    """Why a job cannot start in a directory, or "".

    Args:
        directory: absolute.
        policy: the site's configuration.
        home: the user's, which every guest has, if only as an empty directory.

    Returns:
        Words that name what could be said instead.
    """
    places = covered(policy, home)
    if os.path.normpath(directory) == os.path.normpath(home) or is_below(directory, places):
        return ""
    if not home_is_shared(policy):
        places = (f"your home, {home} (empty)", *places)
    return f"no such directory in the guest; it has {', '.join(places)}"


@frozen
class GuestPlaces:
    """What of the cluster's directories the guests of a user have, and whether devices of their hosts."""

    policy: Policy
    home: str
    devices: bool = False

    def objection(self, directory: str) -> str:
        """Return why a job cannot start in a directory, which is absolute, or ""."""
        return objection(directory, self.policy, self.home)

    def lacks(self, path: str) -> bool:
        """Return whether a path is in the user's home, and the guest's is an empty one."""
        return is_below(path, (self.home,)) and not home_is_shared(self.policy)
