# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's networks: a switch, a cable to each node, a bridge on each compute node; and all of that again between
compute nodes alone, for guests that ask for a further network.  All in namespaces."""

from __future__ import annotations

import json
import pathlib
import subprocess

from .state import FRONT_END, NETWORK, LabError, State

SWITCH = "sw"
FURTHER = "br1"
"""The bridge of the further network."""
NAMESPACES = pathlib.Path("/run/netns")


def make(state: State, addresses: dict[str, str]) -> None:
    """Make the namespaces and the network in them; the machine's own network is not touched.

    Args:
        addresses: of the nodes, by name.

    Raises:
        LabError: `ip` refused.
    """
    switch = state.name(SWITCH)
    _ip([f"netns add {state.name(name)}" for name in (SWITCH, *addresses)])
    for name in ("brsw", FURTHER):
        _ip([f"link add {name} type bridge forward_delay 0 stp_state 0", f"link set {name} up"], switch)
    for name, address in addresses.items():
        here = state.name(name)
        end = f"peer name eth0 address {mac(address)} netns {here}"
        _ip([f"link add v-{name} type veth {end}", f"link set v-{name} master brsw up"], switch)
        if name == FRONT_END:
            face, bridge = "eth0", []
        else:
            face = "br0"
            bridge = [
                "link add br0 type bridge forward_delay 0 stp_state 0",
                "link set eth0 master br0 up",
            ]
        _ip([*bridge, "link set lo up", f"link set {face} up", f"addr add {address}/24 dev {face}"], here)
        if name != FRONT_END:
            _ip([f"route add default via {NETWORK}.1"], here)
            end = f"peer name eth1 netns {here}"
            _ip([f"link add w-{name} type veth {end}", f"link set w-{name} master {FURTHER} up"], switch)
            further = f"link add {FURTHER} type bridge forward_delay 0 stp_state 0"
            _ip([further, f"link set eth1 master {FURTHER} up", f"link set {FURTHER} up"], here)


def make_empty(state: State, name: str) -> None:
    """Make a namespace with nothing but its own loopback.

    Raises:
        LabError: `ip` refused.
    """
    _ip([f"netns add {state.name(name)}"])
    _ip(["link set lo up"], state.name(name))


def mac(address: str) -> str:
    """The MAC address of a node's card.

    A bridge takes the least of its ports' addresses.  One that the kernel chose may be greater than that of a guest's
    tap (fe:54:...): the node would have another with each guest, and nobody would reach it for a while.

    Args:
        address: of the node, IPv4.
    """
    return ":".join(f"{number:02x}" for number in (2, 0, *map(int, address.split("."))))


def plug(state: State, node: str, *, plugged: bool) -> None:
    """The node's cable, at the switch: in, or out.

    Without it nothing reaches the node and nothing comes from it, so that no end of a connection is told of the other.

    Raises:
        LabError: `ip` refused.
    """
    _ip([f"link set v-{node} {'up' if plugged else 'down'}"], state.name(SWITCH))


def forget_rules(state: State, node: str) -> None:
    """Of packets, and networks of jobs: a node's kernel dies with it, and here its network lives on.

    Raises:
        LabError: `nft` or `ip` refused.
    """
    show = ["/usr/sbin/ip", "-n", state.name(node), "-json", "link", "show"]
    links = json.loads(subprocess.run(show, capture_output=True, text=True, timeout=600, check=True).stdout)
    names = [link["ifname"] for link in links]
    _ip([f"link del {name}" for name in names if name.startswith(("vtx", "vtp", "vtv", "vtb"))], state.name(node))
    _run(["/usr/sbin/ip", "netns", "exec", state.name(node), "/usr/sbin/nft", "flush", "ruleset"])


def remove(state: State) -> None:
    """Delete every network namespace of this lab, whether `make` came to its end or not."""
    _ip([f"netns del {name}" for name in present(state)])


def present(state: State) -> list[str]:
    """The network namespaces of this lab."""
    if not NAMESPACES.is_dir():
        return []
    return sorted(path.name for path in NAMESPACES.iterdir() if state.owns(path.name))


def _ip(lines: list[str], namespace: str | None = None) -> None:
    command = ["/usr/sbin/ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    _run(command, "\n".join(lines) + "\n")


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise LabError(f"network: {done.stderr.strip() or 'ip or nft failed without a word'}")
