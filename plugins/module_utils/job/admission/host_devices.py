# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI devices of hosts that a request asks for (`pci=`), against what the site lists in `pci_classes`."""

from __future__ import annotations

import typing as t

from ...wire import pci
from ...wire.messages import DeviceWish
from ..config.parameters import Policy
from ..request.value_types import KeyFault, Value

KEY = "pci"


def read_wishes(value: Value | None) -> tuple[pci.PciWish, ...]:
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
    gpus = {what for one in classes if one.kind == "gpu" for what in (one.name, *one.addresses)}
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


def _objection(wish: pci.PciWish, classes: t.Sequence[pci.PciClass], guests: int) -> str:
    if not classes:
        return "this site hands no devices to guests (pci_classes)"
    if not wish.is_address:
        names = tuple(dict.fromkeys(one.name for one in classes))
        return "" if wish.what in names else f"this site has no such class; it has {', '.join(names)}"
    if not any(wish.what in one.addresses for one in classes):
        return "this site hands no device of that address to guests"
    return "" if guests == 1 else f"{guests} guests on a host cannot have the same device: vms_per_node=1, or a class"
