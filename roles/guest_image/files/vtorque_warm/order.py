# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first order: what it holds, and how it is read.  It is refused whole, or taken whole."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import ipaddress
import os
import re
import time
import typing as t

VERSION = "1"
MAX_PAYLOAD = 4 << 20
MAX_FILES = 256
MIN_ENTROPY = 32


class OrderError(Exception):
    """The first order is not of its form: nothing was changed."""


@dataclasses.dataclass(frozen=True)
class File:
    """A file of the seed, root's."""

    path: str
    mode: int
    content: bytes


@dataclasses.dataclass(frozen=True)
class Order:
    """The first order.

    Attributes:
        entropy: random bytes of the node's.
        clock_ns: the node's time, since the epoch, when it sent the order.
        arrived: when the order's first line was here, in seconds of the monotonic clock.
        address: what this network card had last, or "": the DHCP server is asked for it first.
        name_servers, search_domains: the site's own, before what the DHCP server gives.
    """

    entropy: bytes
    clock_ns: int
    machine_id: str
    boot_id: str
    hostname: str
    mac: str
    instance_id: str
    address: str
    name_servers: t.Tuple[str, ...]
    search_domains: t.Tuple[str, ...]
    files: t.Tuple[File, ...]
    arrived: float

    def clock_now_ns(self) -> int:
        """Return the node's time now, as far as it can be known here."""
        return self.clock_ns + int((time.monotonic() - self.arrived) * 1_000_000_000)


_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
FORMS: t.Dict[str, str] = {
    "version": VERSION,
    "entropy": "[A-Za-z0-9+/]{43,1368}={0,2}",
    "clock": "[0-9]{1,11}[.][0-9]{6}",
    "machine_id": "(?!0{32})[0-9a-f]{32}",
    "boot_id": _UUID,
    "hostname": f"(?=.{{1,64}}$){_LABEL}(?:[.]{_LABEL})*",
    # of one card, not of a group
    "mac": "[0-9a-f][02468ace](?::[0-9a-f]{2}){5}",
    "instance_id": "[A-Za-z0-9][A-Za-z0-9_-]{0,127}",
}
"""The lines of an order and their values, in this order; then those of `MORE`, then files, then `end`."""
MORE = {"address": 1, "name_server": 16, "search_domain": 32}
"""Lines that may be there, in this order, so many at most."""
_FILE = re.compile(r"(0[0-7]{3}) (/[^\x00-\x1f\x7f]{1,1023}) ([A-Za-z0-9+/]*={0,2})")
NOT_FILES = ("/proc", "/sys", "/dev")


def parse_order(payload: bytes, arrived: float) -> Order:
    """Read a first order.

    Args:
        payload: as it came.
        arrived: when it began to come (`Order.arrived`).

    Raises:
        OrderError: it is not whole, or not of its form; says where.
    """
    if len(payload) > MAX_PAYLOAD:
        raise OrderError(f"more than {MAX_PAYLOAD} bytes")
    try:
        lines = payload.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise OrderError("is no UTF-8") from None
    if lines[-2:] != ["end", ""]:
        raise OrderError("has no end")
    values: t.Dict[str, str] = {}
    number = 0
    for key, form in FORMS.items():
        found, blank, value = lines[number].partition(" ")
        if found != key or not blank or not re.fullmatch(form, value):
            raise OrderError(f"line {number + 1}: {key} is due, in its form")
        values[key] = value
        number += 1
    more: t.Dict[str, t.List[str]] = {}
    for key, most in MORE.items():
        values_of = more.setdefault(key, [])
        while lines[number].startswith(f"{key} ") and len(values_of) < most:
            values_of.append(_more(key, lines[number][len(key) + 1 :], number))
            number += 1
    files = tuple(_file(line, place) for place, line in enumerate(lines[number:-2], number + 1))
    if len(files) > MAX_FILES or len({file.path for file in files}) < len(files):
        raise OrderError(f"a file comes twice, or there are more than {MAX_FILES}")
    entropy = _bytes(values["entropy"], "entropy")
    if len(entropy) < MIN_ENTROPY:
        raise OrderError(f"entropy: fewer than {MIN_ENTROPY} bytes")
    seconds, _point, micro = values["clock"].partition(".")
    return Order(
        entropy, int(seconds) * 1_000_000_000 + int(micro) * 1000, values["machine_id"], values["boot_id"],
        values["hostname"], values["mac"], values["instance_id"], "".join(more["address"]),
        tuple(more["name_server"]), tuple(more["search_domain"]), files, arrived,
    )  # fmt: skip


def _bytes(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise OrderError(f"{what}: no base64") from None


def _more(key: str, text: str, number: int) -> str:
    try:
        if key == "address":
            return str(ipaddress.IPv4Address(text))
        if key == "name_server":
            return str(ipaddress.ip_address(text))
    except ValueError:
        raise OrderError(f"line {number + 1}: {key}: no address") from None
    if not re.fullmatch(FORMS["hostname"], text):
        raise OrderError(f"line {number + 1}: {key}: no name")
    return text


def _file(line: str, number: int) -> File:
    key, _blank, rest = line.partition(" ")
    found = _FILE.fullmatch(rest)
    if key != "file" or found is None:
        raise OrderError(f"line {number}: a file is due, in its form")
    path = found[2]
    if os.path.normpath(path) != path or path.startswith("//") or path in NOT_FILES:
        raise OrderError(f"line {number}: the path of a file is due")
    if path.startswith(tuple(f"{place}/" for place in NOT_FILES)):
        raise OrderError(f"line {number}: no file of a file system")
    return File(path, int(found[1], 8), _bytes(found[3], f"line {number}"))
