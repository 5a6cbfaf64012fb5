# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA cells and huge pages that a request asks for: both belong to guests with cores of their own."""

from __future__ import annotations

import typing as t

from ...text import format_mib
from ..request.keys import PINNING
from ..request.request import is_path
from ..request.value_types import KeyFault, Value

NUMA, PAGES = "numa", "hugepages"
PAGE_MIB = {"2M": 2, "1G": 1024}


def is_strict(value: Value | None, *, asked: bool) -> bool:
    """Return whether guests have cores of their own, or do not run.

    Args:
        value: of `vcpu_pinning`.
        asked: by the user; a default of the site's is a preference.
    """
    return is_path(value) or (value is True and asked)


def find_faults(
    values: t.Mapping[str, Value | None], origins: t.Mapping[str, str], site_default: str
) -> t.Iterator[KeyFault]:
    """Yield what of these keys does not go with the others.

    Args:
        values: of all keys.
        origins: of all keys.
        site_default: the origin of what nobody asked for.
    """
    strict = is_strict(values[PINNING], asked=origins[PINNING] != site_default)
    for key, off in ((NUMA, "off"), (PAGES, "none")):
        value = values[key]
        if origins[key] != site_default and value != off and not strict:
            yield KeyFault(key, str(value), "needs cores of its own: vcpu_pinning=true, or a map", origins[key])
    pages, ram = values[PAGES], values["ram"]
    if origins[PAGES] == site_default or pages == "none":
        return
    if values[NUMA] == "off":
        yield KeyFault(PAGES, str(pages), "huge pages are counted in NUMA cells, and numa=off has none", origins[PAGES])
    page = PAGE_MIB.get(str(pages), 1)
    if isinstance(ram, int) and ram % page:
        yield KeyFault(PAGES, str(pages), f"ram={format_mib(ram)} is no multiple of it", origins[PAGES])


def for_wire(values: t.Mapping[str, Value | None], origins: t.Mapping[str, str], site_default: str) -> tuple[str, str]:
    """Return both as nodes read them: guests that share cores have neither (`GuestSpec`).

    Args:
        values: of all keys.
        origins: of all keys.
        site_default: the origin of what nobody asked for.
    """
    strict = is_strict(values[PINNING], asked=origins[PINNING] != site_default)
    if not strict or values[NUMA] == "off":
        return "off", "none"
    return str(values[NUMA]), str(values[PAGES])
