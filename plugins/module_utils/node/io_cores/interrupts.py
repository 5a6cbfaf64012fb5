# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's network card: near which cell it is, and its interrupts, which come to the cores for virtual I/O.

Interrupts are the node's.  They are moved for a start that has the node alone, after it is written down where they
were.  They go back when the start is over, whoever removes it.  A reboot sets them anew.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

from ...errors import VTorqueError
from ...system import files
from ...system.process import process_id
from ..network.addresses import SYS_NET
from ..state.settings import NodeSettings
from ..system import cpus

IRQS = pathlib.Path("/proc/irq")
_DEEP = 4
"""Cards below a bond below a VLAN below a bridge."""


def find_cards(bridge: str, sys_net: pathlib.Path | None = None) -> tuple[pathlib.Path, ...]:
    """Return the devices of the network cards through which a bridge reaches others; a guest's is none.

    Args:
        bridge: its name.
        sys_net: where the kernel shows network devices.
    """
    sys_net = sys_net or SYS_NET
    return tuple(dict.fromkeys(_cards(sys_net / bridge, sys_net, _DEEP)))


def _cards(interface: pathlib.Path, sys_net: pathlib.Path, deep: int) -> t.Iterator[pathlib.Path]:
    device = interface / "device"
    if device.exists():
        yield device.resolve()
        return
    for lower in sorted(interface.glob("lower_*")) if deep else ():
        yield from _cards(sys_net / lower.name.removeprefix("lower_"), sys_net, deep - 1)


def cell_of_uplink(bridge: str, sys_net: pathlib.Path | None = None) -> int | None:
    """Return the NUMA cell of the node's network card; None: it has none, or it is not known.

    Args:
        bridge: of the guests.
        sys_net: where the kernel shows network devices.
    """
    for card in find_cards(bridge, sys_net):
        # of a virtio card the PCI device above it has it
        for place in (card, card.parent):
            with contextlib.suppress(OSError, ValueError):
                cell = int((place / "numa_node").read_text(encoding="ascii"))
                return cell if cell >= 0 else None
    return None


def find_interrupts(bridge: str, sys_net: pathlib.Path | None = None) -> tuple[int, ...]:
    """Return the interrupts of the node's network cards, as the kernel counts them: those of their own alone (MSI).

    Args:
        bridge: of the guests.
        sys_net: where the kernel shows network devices.
    """
    found = []
    for card in find_cards(bridge, sys_net):
        place = next((one / "msi_irqs" for one in (card, card.parent) if (one / "msi_irqs").is_dir()), None)
        found += [int(path.name) for path in place.iterdir() if path.name.isdecimal()] if place else []
    return tuple(sorted(found))


def move(numbers: t.Iterable[int], cores: cpus.Cores, key: str, settings: NodeSettings) -> tuple[int, ...]:
    """Let interrupts come to these cores and no others; where each came to before is written down first.

    Args:
        numbers: of the interrupts.
        cores: of this node.
        key: `state.layout.job_key` of the start, which has the node alone.
        settings: say where it is written down.

    Returns:
        Those that come there now; the kernel moves none that it divides itself (managed interrupts).

    Raises:
        VTorqueError: it was not written down.
    """
    former = _read(settings.interrupts_dir / key)
    new = {number: text for number in numbers if number not in former and (text := _cores_of(number))}
    if new:
        files.make_directory(settings.interrupts_dir)
        content = {"boot": process_id.boot_id(), "former": sorted([*former.items(), *new.items()])}
        files.write(settings.interrupts_dir / key, json.dumps(content))
    known = {**former, **new}
    return tuple(number for number in numbers if number in known and not _set(number, cpus.format_cores(cores)))


def put_back(key: str, settings: NodeSettings) -> tuple[str, ...]:
    """Let interrupts come to where they came to before a start; of an earlier boot nothing is left to put back.

    Args:
        key: `state.layout.job_key` of the start.
        settings: say where it is written down.

    Returns:
        What was put back, and what was not, in words: an interrupt keeps no start from its end.
    """
    path = settings.interrupts_dir / key
    if not path.exists():
        return ()
    back, problems = [], []
    for number, text in _read(path).items():
        now = _cores_of(number)
        if not now or now == text:  # its card is gone, or the kernel did not let it move
            continue
        if why := _set(number, text):
            problems.append(f"interrupt {number}, which stays on {now} and was on {text}: {why}")
        else:
            back.append(number)
    forget(key, settings)
    return (*([f"interrupts {cpus.format_cores(back)} from cores for virtual I/O"] if back else []), *problems)


def forget(key: str, settings: NodeSettings) -> None:
    """Forget where interrupts came to before a start of an earlier boot."""
    (settings.interrupts_dir / key).unlink(missing_ok=True)


def _cores_of(number: int) -> str:
    try:
        return (IRQS / str(number) / "smp_affinity_list").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _set(number: int, text: str) -> str:
    """Let an interrupt come to these cores; why the kernel refused it, or ""."""
    try:
        (IRQS / str(number) / "smp_affinity_list").write_text(text, encoding="ascii")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _read(path: pathlib.Path) -> dict[int, str]:
    """Where interrupts came to before, by their numbers; nothing of an earlier boot, or where it does not say."""
    try:
        content = files.read_json(path)
        if content["boot"] != process_id.boot_id():
            return {}
        return {int(number): cpus.format_cores(cpus.read(text)) for number, text in content["former"]}
    except (FileNotFoundError, KeyError, TypeError, ValueError, VTorqueError):
        return {}
