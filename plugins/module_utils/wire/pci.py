# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI devices as the site lists them and users ask for them: addresses, classes, one line each, and requests.

Mediated devices (parts of a device that its driver makes, such as vGPUs) are listed in the same way, by their UUIDs.
"""

from __future__ import annotations

import re
import typing as t

from ..frozen import frozen
from ..site_lists.for_hosts import entries_for
from .form import number_field, text_field

ADDRESS = r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]"
"""As sysfs names a device: domain, bus, slot and function, in hexadecimal."""
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""As sysfs names a mediated device."""
DEVICE = f"({ADDRESS}|{UUID})"
CLASS = r"[a-z][a-z0-9_-]{0,31}"
KINDS: dict[str, tuple[int, ...]] = {"gpu": (0x0300, 0x0302, 0x0380), "nic": (0x0200, 0x0207), "nvme": (0x0108,)}
"""Class codes (base class and subclass) of the PCI specification, by what a class of the site's may consist of."""
MEDIATED = "mdev"
"""The kind of classes whose devices are mediated: parts that a driver makes of its device."""
OPTIONS = {
    "hosts": r"\S{1,200}",
    "resource": r"[A-Za-z][A-Za-z0-9_]{0,31}",
    "reset": "required|any",
    "numa": "required|any",
    "kind": "|".join((*KINDS, MEDIATED, "any")),
}
FORM = f"a line `class address ... option=value ...`: `gpu 0000:3b:00.0 hosts=gn[0-9]+`; options: {', '.join(OPTIONS)}"
MOST = 64
"""Devices of one class on one host, and of one request."""


@frozen
class PciClass:
    """Devices of one class that the site hands on to guests.

    Attributes:
        name: as users ask for it.
        addresses: of the devices, in the order in which the batch system counts them; of mediated ones the UUIDs.
        hosts: a regular expression for names of the hosts that have them; "": all.
        resource: by which the batch system gives these devices to jobs (`gpus`); "": the node takes the first free.
        reset: whether each of them must have a way to be reset between two jobs.
        numa: whether each must be near the cores of its job.
        kind: one of `KINDS`, which its devices must be of, or `MEDIATED`; "": any PCI device.
        granted: addresses that the batch system has given to a job on this host; None: it gives out none of them.
    """

    name: str
    addresses: tuple[str, ...]
    hosts: str = ""
    resource: str = ""
    reset: bool = True
    numa: bool = False
    kind: str = ""
    granted: tuple[str, ...] | None = None

    @property
    def has_gpus(self) -> bool:
        """Return whether its devices are processors of graphics, or parts of such that the batch system counts so."""
        return self.kind == "gpu" or (self.kind == MEDIATED and self.resource.startswith("gpu"))


@frozen
class DeviceWish:
    """PCI devices of the host that a guest is to have.

    Attributes:
        what: a class of the site's, or an address.
        count: how many of the class.
        gpu: whether they are processors of graphics, which a job counts.
    """

    what: str = text_field(f"{CLASS}|{ADDRESS}")
    count: int = number_field(1, MOST, default=1)
    gpu: bool = False

    @property
    def is_address(self) -> bool:
        """Return whether it names one device."""
        return ":" in self.what

    def __str__(self) -> str:
        return self.what if self.is_address else f"{self.what}:{self.count}"


def full_address(text: str) -> str:
    """Return an address with its domain, which is 0 where none is written.

    Args:
        text: `0000:3b:00.0` or `3b:00.0`.
    """
    text = text.lower()
    return text if text.count(":") == 2 else f"0000:{text}"


def read_wish(text: str) -> DeviceWish:
    """Return what a part of a request's `pci=` asks for.

    Args:
        text: `gpu:1`, or an address; the form was checked (`job/request/keys.py`).
    """
    if "." in text:
        return DeviceWish(full_address(text))
    name, _colon, count = text.partition(":")
    return DeviceWish(name, int(count))


def read_line(line: str) -> PciClass:
    """Return the class that a line of the site's configuration describes.

    Args:
        line: as `FORM` says.

    Raises:
        ValueError: it is of no usable form; the text says what is wrong.
    """
    name, *fields = line.split()[:200] or [""]
    if not re.fullmatch(CLASS, name):
        raise ValueError(FORM)
    values = {"hosts": "", "resource": "", "reset": "required", "numa": "any", "kind": _usual_kind(name) or "any"}
    addresses: list[str] = []
    for field in fields:
        option, equals, value = field.partition("=")
        if not equals:
            addresses.append(field.lower())
        elif option not in OPTIONS or not re.fullmatch(OPTIONS[option], value):
            raise ValueError(f"{field[:80]}: no such option; {FORM}")
        else:
            values[option] = value
    addresses = [_device(text, values["kind"]) for text in addresses]
    if not 0 < len(addresses) <= MOST or len(set(addresses)) != len(addresses):
        raise ValueError(f"from 1 to {MOST} addresses, each of them once; {FORM}")
    try:
        re.compile(values["hosts"])
    except re.error as error:
        raise ValueError(f"hosts={values['hosts'][:80]}: no regular expression ({error})") from None
    kind = "" if values["kind"] == "any" else values["kind"]
    wanted = values["reset"] == "required", values["numa"] == "required"
    return PciClass(name, tuple(addresses), values["hosts"], values["resource"], *wanted, kind)


def _usual_kind(name: str) -> str:
    """Return the kind of a class whose line does not name it."""
    return name if name in KINDS else ""


def _device(text: str, kind: str) -> str:
    if kind == MEDIATED:
        if not re.fullmatch(UUID, text):
            raise ValueError(f"{text[:80]}: not the UUID of a mediated device (kind={MEDIATED}); see mdevctl list")
        return text
    address = full_address(text)
    if not re.fullmatch(ADDRESS, address):
        hint = f" (kind={MEDIATED} takes it)" if re.fullmatch(UUID, text) else ""
        raise ValueError(f"{text[:80]}: not an address such as 0000:3b:00.0{hint}")
    return address


def format_line(pci_class: PciClass) -> str:
    """Return the line that `read_line` reads."""
    options = {
        "hosts": pci_class.hosts,
        "resource": pci_class.resource,
        "reset": "" if pci_class.reset else "any",
        "numa": "required" if pci_class.numa else "",
        "kind": "" if pci_class.kind == _usual_kind(pci_class.name) else pci_class.kind or "any",
    }
    return " ".join([pci_class.name, *pci_class.addresses, *(f"{key}={text}" for key, text in options.items() if text)])


def classes_on(lines: t.Iterable[str], host: str) -> tuple[PciClass, ...]:
    """Return the classes of a host; of several of one name the first that the host has.

    Args:
        lines: of the site's configuration.
        host: its name.
    """
    return entries_for(map(read_line, lines), host)
