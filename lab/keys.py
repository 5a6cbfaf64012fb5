# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of ssh for a cluster of the lab's: every host key is known beforehand to everybody."""

from __future__ import annotations

import shutil
import subprocess
import typing as t

from .state import LabError, State


def make(state: State, nodes: t.Iterable[str]) -> None:
    """A host key for each node, one root key for all; each node gets its own secret alone, and every public part.

    They land in the directory `keys` of each node: `host`, `root`, `root.pub` and `<node>.pub` of every node.

    Raises:
        LabError: ssh-keygen failed.
    """
    keys = state.directory / "keys"
    keys.mkdir(mode=0o700)
    names = ["root", *nodes]
    making = [
        subprocess.Popen(
            ["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@lab", "-f", str(keys / name)],
            stdin=subprocess.DEVNULL,
        )
        for name in names
    ]
    if any([process.wait(timeout=60) for process in making]):
        raise LabError("ssh-keygen failed")
    for node in names[1:]:
        place = state.node(node) / "keys"
        place.mkdir(parents=True, mode=0o700)
        shutil.copy(keys / node, place / "host")
        shutil.copy(keys / "root", place / "root")
        for public in keys.glob("*.pub"):
            shutil.copy(public, place)
