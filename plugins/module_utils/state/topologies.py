# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes have, as they last said it to this host: for users who look before they submit.

Root writes it (`vmgr node topology --all`), everybody may read it, and nothing of any job is in it.
"""

from __future__ import annotations

import json
import pathlib
import re
import typing as t

from ..errors import VTorqueError
from ..system import files
from ..wire.form import to_dict
from ..wire.messages import HOST_NAME
from ..wire.node_topology import NodeTopology, topology_from_dict
from .layout import STATE_DIR

DIRECTORY = "topology"
LIMIT = 1 << 20
"""Bytes of a file, as of an answer."""


def write_topology(topology: NodeTopology, state_dir: pathlib.Path = STATE_DIR) -> pathlib.Path:
    """Write down what a node has, but for what jobs have of it, and return where.

    Args:
        topology: the node's answer.
        state_dir: of this host.

    Raises:
        VTorqueError: it was not written.
    """
    place = state_dir / DIRECTORY
    files.make_directory(place, 0o755)
    path = place / f"{_short(topology.node)}.json"
    files.write(path, json.dumps(to_dict(topology.without_jobs())), mode=0o444)
    return path


def read_topology(node: str, state_dir: pathlib.Path = STATE_DIR) -> NodeTopology | None:
    """Return what a node has, as it last said it; None: it never did, or what is there cannot be used.

    Args:
        node: its name, by which the batch server or itself calls it.
        state_dir: of this host.
    """
    if not re.fullmatch(HOST_NAME, node):
        return None
    try:
        data = files.read_json(state_dir / DIRECTORY / f"{_short(node)}.json", limit=LIMIT)
        return topology_from_dict(data)
    except (OSError, VTorqueError):
        return None


def list_nodes(state_dir: pathlib.Path = STATE_DIR) -> tuple[str, ...]:
    """Return the names of the nodes of which this host remembers something, in their order.

    Args:
        state_dir: of this host.
    """
    return tuple(sorted(path.stem for path in (state_dir / DIRECTORY).glob("*.json")))


def forget_others(nodes: t.Iterable[str], state_dir: pathlib.Path = STATE_DIR) -> tuple[str, ...]:
    """Forget what nodes have that are no more, and return their names.

    Args:
        nodes: those that there are.
        state_dir: of this host.

    Raises:
        OSError: it cannot be removed.
    """
    gone = tuple(name for name in list_nodes(state_dir) if name not in set(map(_short, nodes)))
    for name in gone:
        (state_dir / DIRECTORY / f"{name}.json").unlink(missing_ok=True)
    return gone


def _short(node: str) -> str:
    """As nodes call themselves; the batch system may write it in another case, and with a domain."""
    return node.partition(".")[0].lower()
