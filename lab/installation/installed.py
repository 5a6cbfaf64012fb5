# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles have installed on a lab's nodes, kept for the labs after it.

Nodes of these names have the same addresses in every lab.  With the keys of that one they boot from its disks, as nodes
that were installed and switched off.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess
import typing as t

from ..system import keys
from ..system.state import LabError, State

NODES = ("fe", "cn1", "cn2", "cn3")
WHEELS = "/srv/wheels"
"""Where nodes, which have no way to a package index, see what pip may install."""
PREFIX = "upper/opt/vtorque"
"""The product on a node's disk: that of the kept one lies under each later one's, and is not copied."""


def is_whole(stored: pathlib.Path) -> bool:
    """Return whether the roles have been applied."""
    return (stored / "nodes").is_dir()


def wheels(stored: pathlib.Path) -> pathlib.Path:
    """What pip may install on nodes."""
    return stored / "wheels"


def prefix(stored: pathlib.Path, node: str) -> pathlib.Path | None:
    """What a node finds as /opt/vtorque when it boots."""
    return stored / "prefix" / node if is_whole(stored) else None


def is_used(stored: pathlib.Path) -> bool:
    """Return whether nodes of any lab use it."""
    layer = f"lowerdir={stored}/prefix/"
    for mounts in pathlib.Path("/proc").glob("[0-9]*/mounts"):
        # the process has ended meanwhile
        with contextlib.suppress(OSError):
            if layer in mounts.read_text(encoding="utf-8", errors="replace"):
                return True
    return False


def forget(cache: pathlib.Path) -> None:
    """Remove all that is kept, but for that on which nodes stand."""
    for stored in cache.glob("[0-9a-f]*"):
        if not is_used(stored):
            shutil.rmtree(stored)


def keep(state: State, nodes: t.Iterable[str], stored: pathlib.Path) -> None:
    """Take the disks of nodes that have ended, and their keys, out of a lab.

    Args:
        stored: directory, which is whole afterwards.
    """
    making = stored / "nodes.new"
    for place in (making, stored / "prefix"):
        place.mkdir()
    for node in nodes:
        (state.node(node) / PREFIX).rename(stored / "prefix" / node)
        (state.node(node) / "upper").rename(making / node)
    (state.directory / "keys").rename(stored / "keys")
    making.rename(stored / "nodes")


def lay(stored: pathlib.Path, state: State, nodes: t.Iterable[str]) -> None:
    """Give nodes that have not booted yet the disks and keys that are kept.

    Raises:
        LabError: there is none for a node of this name.
    """
    names = list(nodes)
    strange = [name for name in names if not (stored / "nodes" / name).is_dir()]
    if strange:
        raise LabError(f"the roles have installed {' '.join(NODES)}, and no {' '.join(strange)}")
    shutil.copytree(stored / "keys", state.directory / "keys")
    keys.hand_out(state, names)
    for name in names:
        # with what overlayfs notes of deleted files and replaced directories
        arguments = ["/bin/cp", "-a", str(stored / "nodes" / name), str(state.node(name) / "upper")]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise LabError(f"{name} has no disk: {done.stderr.strip()}")
