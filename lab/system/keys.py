# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of ssh for a cluster of the lab's: every host key is known beforehand to everybody, the machine included."""

from __future__ import annotations

import pathlib
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
    if any([process.wait(timeout=600) for process in making]):
        raise LabError("ssh-keygen failed")
    hand_out(state, names[1:])


def hand_out(state: State, nodes: t.Iterable[str]) -> None:
    """Give each node its part of the keys that are there."""
    keys = state.directory / "keys"
    for node in nodes:
        place = state.node(node) / "keys"
        place.mkdir(parents=True, mode=0o700)
        shutil.copy(keys / node, place / "host")
        shutil.copy(keys / "root", place / "root")
        for public in keys.glob("*.pub"):
            shutil.copy(public, place)


def ssh_config(state: State, addresses: t.Mapping[str, str]) -> pathlib.Path:
    """Write how the machine reaches the nodes: as root, by the key of `make`, through their network namespaces.

    Args:
        addresses: by the nodes' names, where sshd listens in their network namespaces.

    Returns:
        A file for `ssh -F`.
    """
    keys, known = state.directory / "keys", state.directory / "known_hosts"
    publics = {name: (keys / f"{name}.pub").read_text(encoding="ascii") for name in addresses}
    known.write_text("".join(f"{name} {public}" for name, public in publics.items()), encoding="ascii")
    path = state.directory / "ssh_config"
    path.touch(mode=0o600)
    path.write_text(
        f"Host *\n  User root\n  IdentityFile {keys / 'root'}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n  BatchMode yes\n"
        f"  ControlMaster auto\n  ControlPersist 60\n  ControlPath {state.directory}/cp-%h\n"
        + "".join(
            f"Host {name}\n"
            f"  ProxyCommand /usr/bin/nsenter --net=/run/netns/{state.name(name)} /bin/busybox nc {address} 22\n"
            for name, address in addresses.items()
        ),
        encoding="ascii",
    )
    return path
