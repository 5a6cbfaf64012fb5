# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA cells and huge pages that a request asks for, of guests with cores of their own; cores for virtual I/O."""

from __future__ import annotations

import typing as t

from ...text import format_mib
from ..config.consistency import out_of_bounds
from ..config.parameters import Policy
from ..request.keys import PINNING
from ..request.request import is_path
from ..request.value_types import KeyFault, Value

NUMA, PAGES = "numa", "hugepages"
IO, IO_MIN, IO_MAX = "iocm", "iocm_min_cores", "iocm_max_cores"
PAGE_MIB = {"2M": 2, "1G": 1024}


class Choices(t.NamedTuple):
    """Values of all keys while those that follow from others are settled.

    Attributes:
        values: of all keys; changed by who settles one.
        origins: of these; changed with them.
        asked: keys that the request says itself: a site default gives way without a word.
        policy: what the site allows, and its bounds.
    """

    values: dict[str, Value | None]
    origins: dict[str, str]
    asked: t.Container[str]
    policy: Policy


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


class IoCores(t.NamedTuple):
    """Cores for virtual I/O of a job on each of its nodes, as nodes read them (`GuestSpec`).

    Attributes:
        least: how many it has in any case; 0: it has none.
        most: how many it has under load.
        required: by the user; else its guests run without them, too.
    """

    least: int = 0
    most: int = 0
    required: bool = False


def resolve_io_cores(choices: Choices) -> t.Iterator[KeyFault]:
    """Decide the bounds of a job's cores for virtual I/O, and yield what speaks against them.

    A default gives way to the bound that the user gives.

    Args:
        choices: of the request; changed.
    """
    values, origins, asked, policy = choices
    if values[IO] is not True:
        for key in (IO_MIN, IO_MAX):
            if key in asked:
                yield KeyFault(key, str(values[key]), f"goes with {IO}=true", origins[key])
        return
    if IO in asked and not policy.iocm_enabled:
        yield KeyFault(IO, "true", "this site has switched it off (iocm_enabled)", origins[IO])
    low, high = _number(values[IO_MIN]), _number(values[IO_MAX])
    if low > high and IO_MIN in asked and IO_MAX not in asked and not out_of_bounds(IO_MIN, low, policy):
        values[IO_MAX], origins[IO_MAX] = low, f"as {IO_MIN}"
    elif low > high and IO_MAX in asked and IO_MIN not in asked and not out_of_bounds(IO_MAX, high, policy):
        values[IO_MIN], origins[IO_MIN] = high, f"as {IO_MAX}"


def io_cores(values: t.Mapping[str, Value | None], asked: bool) -> IoCores:
    """Return the cores for virtual I/O that a job has on each node.

    Args:
        values: of all keys, settled.
        asked: whether the user has asked for them.
    """
    if values[IO] is not True:
        return IoCores()
    return IoCores(_number(values[IO_MIN]), _number(values[IO_MAX]), asked)


def io_demand(values: t.Mapping[str, Value | None], origins: t.Mapping[str, str], site_default: str) -> tuple[int, str]:
    """Return how many cores for virtual I/O a node must have for a job, and why as many.

    Where each vCPU has a core of its own, more of them can only come from cores that idle until then.

    Args:
        values: of all keys, settled.
        origins: of all keys.
        site_default: the origin of what nobody asked for.
    """
    cores = io_cores(values, asked=True)
    if not cores.most:
        return 0, ""
    if is_strict(values[PINNING], asked=origins.get(PINNING, site_default) != site_default):
        return cores.most, IO_MAX
    return cores.least, IO_MIN


def _number(value: Value | None) -> int:
    return value if isinstance(value, int) else 0
