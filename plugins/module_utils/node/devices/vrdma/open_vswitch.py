# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports and flows on a bridge of the site's Open vSwitch; the bridge and all else on it are the site's.

A port is ours if its name is of our form and `external_ids:vtorque` names a start; ovs-vsctl writes both in one
transaction.  Ports are in a database on the disk, and outlive a boot.  Flows are in the memory of ovs-vswitchd; their
cookie has the number of their port.

Source: ovs-vsctl(8), ovs-ofctl(8), ovs-fields(7), ovs-vswitchd.conf.db(5) of Open vSwitch 3.1.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import subprocess
import typing as t

from ....errors import NodeFault
from ....system import files
from ...system.tool import run_tool

PREFIX = "vtv"
NAME = rf"{PREFIX}[1-9][0-9]{{0,2}}"
CALL_S = 5.0
"""For a program to answer, which waits one second less for Open vSwitch itself."""
_COOKIE = 0x76746F72_00000000
"""`vtor`, and below it the number of the port."""
_HELD, _LET = 60000, 60010
"""Priorities: what is dropped of a guest's, and above it what is let through."""
_VERSIONS = "OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"
"""A site's bridge may speak some of them alone; the newest of both sides' is used."""


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """A port with a name of our form.

    Attributes:
        key: `state.layout.job_key` of the start whose it is; "": it is none of ours.
    """

    name: str
    key: str


@dataclasses.dataclass(frozen=True, slots=True)
class NewPort:
    """A port that a guest gets.

    Attributes:
        name: of `NAME`.
        key: `state.layout.job_key` of its start.
        socket: to which it connects: qemu listens there.
        vlan: of which it is an access port; "": of none.
    """

    name: str
    key: str
    socket: pathlib.Path
    vlan: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Sender:
    """Who may send from a port.

    Attributes:
        name: of the port.
        mac: the guest's.
        address: the guest's, IPv4.
        peers: to which addresses; (): to none, so that nothing but ARP is let through.
    """

    name: str
    mac: str
    address: str
    peers: tuple[str, ...] = ()


def find_problem(bridge: str, *, confine: bool) -> str:
    """Return why guests could have no port on a bridge, or "".

    Args:
        bridge: by name.
        confine: whether guests may send there from their own addresses alone.
    """
    question = ("get", "Open_vSwitch", ".", "dpdk_initialized", "--", "get", "Bridge", bridge)
    try:
        initialized, datapath, mode = _vsctl(*question, "datapath_type", "fail_mode").split()
        # the database answers also where the switch itself has ended
        _ofctl("show", bridge)
    except NodeFault as fault:
        return fault.why
    except ValueError:
        return f"what ovs-vsctl prints of {bridge} is not understood"
    if datapath.strip('"') != "netdev":
        return f"{bridge} is no bridge in user space: its datapath_type is {datapath}, not netdev"
    if initialized != "true":
        return "Open vSwitch runs without DPDK: dpdk_initialized is false"
    if confine and mode.strip('"') != "secure":
        why = "with confine_guests its fail_mode must be secure: else all is let through when Open vSwitch restarts"
        return f"{bridge}: {why}"
    return ""


def list_ports() -> tuple[Port, ...]:
    """Return all ports with names of our form, also those that are not ours.

    Raises:
        NodeFault: Open vSwitch does not answer.
    """
    text = _vsctl("--format=json", "--columns=name,external_ids", "list", "Interface")
    found = []
    for name, (_map, pairs) in json.loads(text)["data"]:
        if re.fullmatch(NAME, name):
            found.append(Port(name, dict(pairs).get("vtorque", "")))
    return tuple(found)


def add_ports(bridge: str, ports: t.Sequence[NewPort]) -> None:
    """Add ports, all or none; one of the same name that is there is replaced.

    Raises:
        NodeFault: they were not added.
    """
    command: list[str] = []
    for port in ports:
        tag = [f"tag={port.vlan}"] if port.vlan else []
        options = (
            "type=dpdkvhostuserclient",
            f"options:vhost-server-path={json.dumps(str(port.socket))}",
            f"external_ids:vtorque={json.dumps(port.key)}",
        )
        command += ["--", "--if-exists", "del-port", port.name, "--", "add-port", bridge, port.name, *tag]
        command += ["--", "set", "Interface", port.name, *options]
    _vsctl(*command[1:])


def remove_ports(bridge: str, names: t.Sequence[str]) -> None:
    """Remove ports, and then their flows: the next port may have the same number within the switch.

    Args:
        bridge: on which the flows are; it may be gone.
        names: of ports, which may be gone.

    Raises:
        NodeFault: they were not removed.
    """
    command: list[str] = []
    for name in names:
        command += ["--", "--if-exists", "del-port", name]
    _vsctl(*command[1:])
    if bridge in _vsctl("list-br").split():
        for name in names:
            _ofctl("del-flows", bridge, f"cookie={_cookie_of(name):#x}/-1")


def confine_ports(bridge: str, senders: t.Sequence[Sender], notes: pathlib.Path) -> None:
    """Let through of each guest's frames those alone that are of its own MAC address and address, and to its peers.

    Frames with a VLAN tag are dropped, too: `vlan_tci` is 0 without one.

    Args:
        bridge: on which the ports are.
        senders: the guests.
        notes: a file, which is written for ovs-ofctl and removed.

    Raises:
        NodeFault: the flows were not added.
        VTorqueError: the file was not written.
    """
    command: list[str] = []
    for sender in senders:
        command += ["--", "get", "Interface", sender.name, "ofport"]
    numbers = _vsctl(*command[1:]).split()
    lines: list[str] = []
    for sender, number in zip(senders, numbers, strict=True):
        if not number.isdecimal():
            why = f"Open vSwitch could not make port {sender.name} (its log says why: ovs-vswitchd.log)"
            raise NodeFault(f"{sender.name} on {bridge}", why, "see its memory for DPDK", cause="devices")
        lines += _flows_of(sender, number)
    files.write(notes, "".join(f"{line}\n" for line in lines))
    try:
        _ofctl("add-flows", bridge, str(notes))
    finally:
        notes.unlink(missing_ok=True)


def _flows_of(sender: Sender, number: str) -> t.Iterator[str]:
    cookie = f"cookie={_cookie_of(sender.name):#x},in_port={number}"
    own = f"priority={_LET},vlan_tci=0x0000/0x1fff,dl_src={sender.mac}"
    yield f"{cookie},priority={_HELD},actions=drop"
    yield f"{cookie},{own},arp,arp_sha={sender.mac},arp_spa={sender.address},actions=NORMAL"
    for peer in sender.peers:
        yield f"{cookie},{own},ip,nw_src={sender.address},nw_dst={peer},actions=NORMAL"


def _cookie_of(name: str) -> int:
    return _COOKIE | int(name.removeprefix(PREFIX))


def _vsctl(*arguments: str) -> str:
    return _run_query("ovs-vsctl", *arguments)


def _ofctl(*arguments: str) -> str:
    return _run_query("ovs-ofctl", "-O", _VERSIONS, *arguments)


def _run_query(program: str, *arguments: str) -> str:
    """Return what a program of Open vSwitch prints.

    Raises:
        NodeFault: it cannot, or not in time.
    """
    command = [program, f"--timeout={CALL_S - 1:.0f}", *arguments]
    why = ""
    try:
        done = run_tool(command, CALL_S)
        if done.returncode:
            why = done.stderr.strip()[-500:] or f"{program} ended with status {done.returncode}"
    except subprocess.TimeoutExpired:
        why = f"{program} gave no answer within {CALL_S:.0f} s"
    except OSError as error:
        why = f"{program}: {error.strerror or error}"
    if why:
        raise NodeFault("Open vSwitch", why, "does it run?", cause="devices")
    return done.stdout
