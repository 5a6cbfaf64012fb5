# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual functions of the site's network cards (SR-IOV): verbs of the card itself in a guest.

A function is chosen, checked, leased and handed on as any PCI device (`pci/passthrough.py`), but before its guest has
it, it gets an identity by its card's own driver (ip-link(8), `vf`): MAC address and VLAN, with forged addresses
refused, or on InfiniBand GUIDs, which are zero until then.  It is read back, for a driver may pass over what it cannot.
libvirt gets a plain hostdev: its own interface would set a part of the same again, and knows no GUIDs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
import subprocess
import typing as t

from ....errors import NodeFault, SiteFault, VTorqueError
from ....system.clock import Deadline
from ....time_budget import DEVICE_ATTACH_S, DEVICE_RETURN_S
from ....wire.messages import GuestSpec
from ....wire.pci import PciClass
from ...state.settings import NodeSettings
from ...state.start_lock import lock_alone
from ...system.tool import run_tool
from .. import leases
from ..api import HostDevice, Taking
from ..pci import inventory, passthrough, preflight, sysfs_binding
from .site_kind import refuse_other_kind

KIND = "sriov"
CLASS = "vrdma"
REMEDY = "see vrdma_ports in vtorque.yml, and sriov_numvfs of the card"
MOST = 256
"""Functions of one node: the last byte of a MAC address counts them."""
IP_S = 5.0
_INFINIBAND = "32"
"""ARPHRD_INFINIBAND of linux/if_arp.h."""
_IS_UP = 1
"""IFF_UP of linux/if.h."""
_NO_MAC, _NO_GUID = "00:00:00:00:00:00", "00:00:00:00:00:00:00:00"


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A virtual function of one of the site's cards.

    Attributes:
        port: the card's network device.
        number: as its driver counts the functions.
        address: of the function.
        index: among all functions of the node, by which its identity is its own.
        infiniband: whether it has GUIDs, and no MAC address.
    """

    port: str
    number: int
    address: str
    index: int = 0
    infiniband: bool = False


def is_wanted(spec: GuestSpec) -> bool:
    """Return whether a guest is to have a virtual function."""
    return spec.rdma == KIND


def find_problem(settings: NodeSettings) -> str:
    """See `api.RdmaKind.find_problem`; one in quarantine is told, too."""
    functions, problems = find_functions(settings)
    mine = {one.address for one in functions}
    bad = [f"{one.device} is in quarantine: {one.why}" for one in leases.read_quarantine(settings)
           if one.device in mine]  # fmt: skip
    return "" if len(bad) < len(mine) else "; ".join([*problems, *bad])


def list_classes(settings: NodeSettings) -> tuple[PciClass, ...]:
    """See `api.RdmaKind.list_classes`: what would be handed out if nothing spoke against it."""
    addresses = tuple(one.address for one in find_functions(settings)[0])
    return (PciClass(CLASS, addresses, kind="nic"),) if addresses else ()


def find_lost(_settings: NodeSettings) -> tuple[leases.Lease, ...]:
    """See `api.RdmaKind.find_lost`: a boot of the node resets all cards."""
    return ()


def admit(_mine: t.Sequence[leases.Lease], _peers: t.Sequence[str], _settings: NodeSettings) -> None:
    """See `api.RdmaKind.admit`: no guest on a virtual function is held."""


def find_functions(settings: NodeSettings) -> tuple[tuple[Function, ...], tuple[str, ...]]:
    """Return the functions of the site's cards on this node whose link is up, and what is wrong with the others.

    Args:
        settings: name the cards.
    """
    found: list[Function] = []
    problems = []
    count = 0
    for port in settings.rdma_ports:
        place = passthrough.HOST.sys / "class/net" / port
        here = _functions_of(port, place, count)
        count += len(here)
        if problem := _problem_of(port, place, here):
            problems.append(problem)
        else:
            found += [one for one in here if one.index < MOST]
    return tuple(found), tuple(problems)


def _functions_of(port: str, place: t.Any, first: int) -> list[Function]:
    """All of a card; each keeps its index, whatever becomes of other cards' links."""
    links = {int(one.name[6:]): one for one in (place / "device").glob("virtfn*") if one.name[6:].isdecimal()}
    infiniband = inventory.read_text(place / "type") == _INFINIBAND
    return [
        Function(port, number, link.readlink().name, first + position, infiniband)
        for position, (number, link) in enumerate(sorted(links.items()))
    ]


def _problem_of(port: str, place: t.Any, here: t.Sequence[Function]) -> str:
    if not place.exists():
        return f"{port}: there is no such network card (vrdma_ports)"
    if not here:
        return f"{port} has no virtual functions: write their number to /sys/class/net/{port}/device/sriov_numvfs"
    flags = inventory.read_text(place / "flags")
    is_up = re.fullmatch("0x[0-9a-f]+", flags) and int(flags, 16) & _IS_UP
    if not is_up or inventory.read_text(place / "carrier") != "1":
        return f"{port} has no link: its functions would have none"
    return ""


def take(taking: Taking) -> dict[int, tuple[HostDevice, ...]]:
    """See `api.DeviceKind.take`."""
    settings = taking.settings
    refuse_other_kind(settings, KIND)
    what = f"vrdma on {settings.node_name}"
    if settings.confine_guests:
        why = "no rule of the node holds a guest on a virtual function to its address (confine_guests)"
        raise SiteFault(what, why, "vrdma_kind: rxe, or confine_guests: false")
    if problem := find_problem(settings):
        raise NodeFault(what, problem, REMEDY, cause="devices")
    functions = {one.address: one for one in find_functions(settings)[0]}
    wanting = [spec for spec in taking.guests if is_wanted(spec)]
    with lock_alone(leases.lock_of(settings), settings, taking.deadline):
        picker = passthrough.Picker(taking)
        others = {one.device for one in leases.read_leases(settings) if one.kind != KIND}
        usable = [address for address in functions if address not in picker.quarantined and address not in others]
        if len(usable) < len(wanting):
            why = f"{len(wanting)} guests want a virtual function each, and {len(usable)} can be handed on"
            raise VTorqueError(what, why, "another time, or fewer guests on a host")
        [pci_class] = list_classes(settings)
        order = picker.sort(usable, pci_class, wanting[0].index)
        chosen = [picker.inspect(address, pci_class, spec.index) for address, spec in zip(order, wanting, strict=False)]
        if faults := picker.faults_of(chosen):
            raise preflight.error_of(faults, settings.node_name)
        found: dict[int, tuple[HostDevice, ...]] = {}
        for one in chosen:
            address = one.device.address
            leases.end_lease(address, settings)  # of this very start, which was begun before
            leases.write_lease(leases.Lease(address, taking.key, one.guest, KIND, one.device.driver), settings)
            identity = _identity_of(functions[address], settings)
            found[one.guest] = (
                passthrough.device_of(KIND, one.device, label=f"vrdma:{KIND}:{address}", identity=identity),
            )
        return found


def _identity_of(one: Function, settings: NodeSettings) -> tuple[str, ...]:
    """Return card and number of a function, and pairs of words for `ip` in the order in which they are set.

    A guest's own MAC address has its prefix as the site wrote it; that of a function has another bit of the first byte,
    which makes it no less local to the site.  Cards of Intel refuse to check addresses before there is one.
    """
    guests = settings.mac(one.index)
    mac = f"{int(guests[:2], 16) ^ 0x08:02x}{guests[2:]}"
    attributes: tuple[str, ...]
    if one.infiniband:
        attributes = ("node_guid", f"{mac[:8]}:ff:fe:{mac[9:]}", "port_guid", f"{mac[:8]}:ff:ff:{mac[9:]}")
    else:
        attributes = ("mac", mac, "vlan", str(settings.rdma_vlan or 0), "spoofchk", "on", "trust", "off")
    return (one.port, str(one.number), *attributes, "state", "auto")


def attach(devices: t.Sequence[HostDevice], _qemu_ids: tuple[int, int], deadline: Deadline) -> None:
    """See `api.DeviceKind.attach`."""
    until = Deadline.after(deadline.left_s(DEVICE_ATTACH_S))
    children = [
        sysfs_binding.hand_out(device.name, passthrough.HOST.sys, functools.partial(_give_identity, device.identity))
        for device in devices
    ]
    errors = [error for child in children if (error := child.wait(until))]
    if errors:
        raise errors[0]


def give_back(mine: t.Sequence[leases.Lease], settings: NodeSettings) -> tuple[str, ...]:
    """See `api.DeviceKind.give_back`: as any PCI device, but for its identity, which goes first."""
    until = Deadline.after(DEVICE_RETURN_S)
    sys = passthrough.HOST.sys
    children = [
        (
            lease.device,
            sysfs_binding.give_back(lease.device, lease.driver, sys, functools.partial(_end_identity, lease.device)),
        )
        for lease in mine
    ]
    return passthrough.await_return(children, until, settings)


def _give_identity(identity: tuple[str, ...]) -> None:
    port, number, *attributes = identity
    wanted = dict(zip(attributes[::2], attributes[1::2], strict=True))
    for name, value in wanted.items():
        with contextlib.suppress(OSError) if name == "trust" else contextlib.nullcontext():
            _run("link", "set", "dev", port, "vf", number, name, value)  # a driver without trust has nothing to end
    found = _read_back(port, number)
    for name, value in wanted.items():
        if found[name] != value:
            raise OSError(f"{name} of function {number} of {port} is {found[name] or 'not known'} and not {value}")


def _end_identity(address: str) -> None:
    """Take the identity away, as far as the driver lets it: the next guest's is set and read back in any case."""
    place = inventory.place_of(address, passthrough.HOST.sys)
    for port, number in _of_card(address, place):
        is_infiniband = inventory.read_text(place / "physfn/net" / port / "type") == _INFINIBAND
        pairs = {"node_guid": _NO_GUID, "port_guid": _NO_GUID} if is_infiniband else {"vlan": "0", "mac": _NO_MAC}
        for name, value in pairs.items():
            with contextlib.suppress(OSError):
                _run("link", "set", "dev", port, "vf", number, name, value)


def _of_card(address: str, place: t.Any) -> t.Iterator[tuple[str, str]]:
    """Yield each network device of a function's card, with the number of the function."""
    card = place / "physfn"
    numbers = [link.name[6:] for link in card.glob("virtfn*") if link.readlink().name == address]
    for port in inventory.list_names(card / "net"):
        yield from ((port, number) for number in numbers)


def _read_back(port: str, number: str) -> dict[str, str]:
    """Return what a card's driver says of a function, in the words that set it; "" where it says nothing.

    Older programs `ip` write `mac` for `address`, and `vlan` beside the list (print_vfinfo of iproute2).
    """
    try:
        rows = json.loads(_run("-json", "-details", "link", "show", "dev", port))
    except ValueError:
        raise OSError(f"what ip says of {port} is no JSON") from None
    known = [one for row in rows for one in row.get("vfinfo_list", ()) if one.get("vf") == int(number)]
    if not known:
        raise OSError(f"{port} knows no function {number}")
    one = known[0]
    vlans = [tag.get("vlan", 0) for tag in one.get("vlan_list", ()) if tag.get("vlan")]
    switches = {True: "on", False: "off", None: ""}
    return {
        "mac": str(one.get("address") or one.get("mac") or "").lower(),
        "vlan": ",".join(map(str, vlans)) or str(one.get("vlan", 0)),
        "spoofchk": switches[one.get("spoofchk")],
        "trust": switches[one.get("trust")] or "off",
        "state": str(one.get("link_state") or ""),
        "node_guid": str(one.get("node guid") or "").lower(),
        "port_guid": str(one.get("port guid") or "").lower(),
    }


def _run(*arguments: str) -> str:
    """Return what `ip` prints; of all that may go wrong an OSError, for the child's sake (`sysfs_binding.Child`)."""
    try:
        done = run_tool(["ip", *arguments], IP_S)
    except subprocess.TimeoutExpired:
        raise OSError(f"ip {' '.join(arguments)}: no answer within {IP_S:.0f} s") from None
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip() or 'failed'}")
    return done.stdout
