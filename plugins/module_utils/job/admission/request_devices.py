# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts give guests of a request: `pci=`, of the site's list; `unclot=`, shared memory; `vrdma=`; `network=`."""

from __future__ import annotations

import typing as t

from ...errors import UserFault
from ...guest_kinds import kind_of
from ...site_lists import guest_networks
from ...text import format_mib
from ...wire import pci
from ...wire.pci import DeviceWish
from ..config.consistency import networks_of, out_of_bounds, region_mib
from ..config.parameters import Policy
from ..request.host_expressions import host_matches
from ..request.value_types import KeyFault, Value
from .numa import Choices

KEY = "pci"
REGION, REGION_SIZE = "unclot", "unclot_shmem"
RDMA = "vrdma"
NETWORK = "network"
WITHOUT_VERBS = ("vhostuser",)
"""Kinds that are of use to guests without verbs, too."""


def read_wishes(value: Value | None) -> tuple[pci.DeviceWish, ...]:
    """Return what each guest is to have.

    Args:
        value: of the key; None: nothing.
    """
    return tuple(map(pci.read_wish, value)) if isinstance(value, tuple) else ()


def wishes_for_wire(value: Value | None, policy: Policy) -> tuple[DeviceWish, ...]:
    """Return the same as nodes read it.

    Args:
        value: of the key.
        policy: lists the devices.
    """
    wishes = read_wishes(value)
    classes = tuple(map(pci.read_line, policy.pci_classes)) if wishes else ()
    gpus = {what for one in classes if one.has_gpus for what in (one.name, *one.addresses)}
    return tuple(DeviceWish(wish.what, wish.count, wish.what in gpus) for wish in wishes)


def find_faults(values: t.Mapping[str, Value | None], origin: str, policy: Policy) -> t.Iterator[KeyFault]:
    """Yield what no host of the site can give; whether one has it free shows where the job starts.

    Args:
        values: of all keys.
        origin: of this one.
        policy: lists the devices.
    """
    classes = tuple(map(pci.read_line, policy.pci_classes))
    per_node = values["vms_per_node"]
    guests = per_node if isinstance(per_node, int) else 1
    counts: dict[str, int] = {}
    for wish in read_wishes(values[KEY]):
        if message := _objection(wish, classes, guests):
            yield KeyFault(KEY, str(wish), message, origin)
        counts[wish.what] = counts.get(wish.what, 0) + wish.count
    for what, count in counts.items():
        most = max((len(one.addresses) for one in classes if one.name == what), default=0)
        if most and count * guests > most:
            times = f"{guests} guests on a host want {count} each: " if guests > 1 else ""
            yield KeyFault(KEY, f"{what}:{count}", f"{times}no host of this site has more than {most}", origin)


def _objection(wish: pci.DeviceWish, classes: t.Sequence[pci.PciClass], guests: int) -> str:
    if not classes:
        return "this site hands no devices to guests (pci_classes)"
    if not wish.is_address:
        names = tuple(dict.fromkeys(one.name for one in classes))
        return "" if wish.what in names else f"this site has no such class; it has {', '.join(names)}"
    if not any(wish.what in one.addresses for one in classes):
        return "this site hands no device of that address to guests"
    return "" if guests == 1 else f"{guests} guests on a host cannot have the same device: vms_per_node=1, or a class"


def resolve_region(choices: Choices) -> t.Iterator[KeyFault]:
    """Decide the size of the region that a job's guests on a host share, and yield what speaks against one.

    Args:
        choices: of the request, after the image is chosen; changed.
    """
    values, origins, asked, policy = choices
    size = values[REGION_SIZE]
    if values[REGION] is not True:
        if REGION_SIZE in asked:
            yield KeyFault(REGION_SIZE, format_mib(_mib(size)), "goes with unclot=true", origins[REGION_SIZE])
        return
    distro = values["distro"]
    message = "" if policy.unclot_enabled else "this site has switched it off (unclot_enabled)"
    if isinstance(distro, str) and not kind_of(distro).linux:
        message = message or "OSv has no user to whom its one guest could give the region"
        if REGION not in asked:  # a site default gives way without a word
            values[REGION], origins[REGION] = False, "OSv has none"
            return
    if message:
        yield KeyFault(REGION, "true", message, origins[REGION])
        return
    region = region_mib(policy, _mib(size) or None)
    if region != size:
        origins[REGION_SIZE] += f" ({format_mib(_mib(size))}, raised to a power of two)" if size else ""
        if (message := out_of_bounds(REGION_SIZE, region, policy)) and not out_of_bounds(REGION_SIZE, size, policy):
            why = f"becomes {format_mib(region)}, the next power of two: {message}"
            yield KeyFault(REGION_SIZE, format_mib(_mib(size)), why, origins[REGION_SIZE])
    values[REGION_SIZE] = region


def resolve_rdma(choices: Choices, verbs: str) -> t.Iterator[KeyFault]:
    """Name the kind of the RDMA device that guests get, and yield what speaks against one.

    Args:
        choices: of the request, after the image is chosen; changed.
        verbs: what the record of the image says of them: `yes`, `no`, or "": nothing.
    """
    values, origins, asked, policy = choices
    if values[RDMA] is not True:
        return
    distro, message, gives_way = values["distro"], "", ""
    if not policy.vrdma_enabled:
        message = "this site has switched it off (vrdma_enabled)"
    elif isinstance(distro, str) and not kind_of(distro).linux:
        message, gives_way = "OSv has no verbs", "OSv has none"
    elif verbs == "no" and policy.vrdma_kind not in WITHOUT_VERBS:
        message = f"guests of the image {values['img']} have no verbs, as its record says"
        gives_way = "the image's record"
    if gives_way and RDMA not in asked:
        values[RDMA], origins[RDMA] = False, gives_way
    elif message:
        yield KeyFault(RDMA, "true", message, origins[RDMA])
    else:
        origins[RDMA] += f" ({policy.vrdma_kind})"


def resolve_networks(choices: Choices) -> t.Iterator[KeyFault]:
    """Yield what speaks against further networks; OSv gives up those of the site's default without a word.

    Args:
        choices: of the request, after the image is chosen; changed.
    """
    values, origins, asked, policy = choices
    chosen, distro = values[NETWORK], values["distro"]
    if not isinstance(chosen, tuple):
        return
    message = guest_networks.objection(chosen, networks_of(policy))
    if not message and isinstance(distro, str) and not kind_of(distro).linux:
        if NETWORK not in asked:
            values[NETWORK], origins[NETWORK] = None, "OSv has one card"
            return
        message = "OSv has one network card"
    if message:
        yield KeyFault(NETWORK, "+".join(chosen), message, origins[NETWORK])


def rdma_for_wire(value: Value | None, policy: Policy, nodes: t.Iterable[str]) -> str:
    """Return of which kind the RDMA device of each guest is, as nodes read it; "": it has none.

    Args:
        value: of the key.
        policy: has the kind, and says which nodes can give one.
        nodes: that run guests of the job.

    Raises:
        UserFault: the batch system gave the job nodes that cannot.
    """
    if value is not True:
        return ""
    if lacking := [node for node in nodes if not host_matches(policy.vrdma_nodes, node)]:
        why = f"no guest of {', '.join(lacking)} can have one (vrdma_nodes)"
        raise UserFault(f"{RDMA}=true", why, "ask the batch system for nodes that can, by name or by a property")
    return policy.vrdma_kind


def notice_of_region(asked: Value | None, region: int) -> str:
    """Return what is said to a user whose region is larger than they asked for, or "".

    Args:
        asked: what they asked for, in MiB; None: nothing.
        region: what they get, in MiB.
    """
    if not isinstance(asked, int) or asked == region:
        return ""
    return f"{REGION_SIZE}={format_mib(asked)} becomes {format_mib(region)}, the next power of two"


def _mib(value: Value | None) -> int:
    return value if isinstance(value, int) else 0
