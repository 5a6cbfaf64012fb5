# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's rows on side channels: threads of cores, faults of the processor, merged pages, and libvirt's wish."""

from __future__ import annotations

import functools
import pathlib
import re
import typing as t

from ...errors import SiteFault
from ...system.process import prctl
from ...wire.health_report import BAD, NONE, OK, WARN, Finding
from ..state.settings import NodeSettings
from ..system import side_channels

QEMU_CONF = pathlib.Path("/etc/libvirt/qemu.conf")
_SCHED_CORE = re.compile(r"""^\s*sched_core\s*=\s*["']([a-z]{1,20})["']""", re.MULTILINE)
_SHOWN = 5


def check_smt(
    settings: NodeSettings,
    sys: pathlib.Path = side_channels.SYS,
    configuration: pathlib.Path = QEMU_CONF,
    able: t.Callable[[], bool] = prctl.has_core_scheduling,
) -> Finding:
    """Check whether cores have several threads, and that libvirt wants no core scheduling of a kernel without it.

    Args:
        settings: say what the site promises.
        sys: where the kernel tells.
        configuration: libvirt's, of qemu.
        able: asks the kernel for core scheduling.
    """
    smt = side_channels.read_smt(sys)
    cell = "off" if smt in side_channels.SMT_IS_OFF else smt or "?"
    wanted = _wanted_core_scheduling(configuration)
    if wanted not in ("", "none") and not able():
        problem = f'sched_core = "{wanted}" in {configuration}, and the kernel has none: libvirtd will not start again'
        return Finding("smt", BAD, cell, problem, "take the line away before libvirtd is restarted")
    if settings.side_channels == side_channels.STRICT and cell != "off":
        problem = "side_channels: strict refuses all jobs here, since cores have several threads"
        return Finding("smt", BAD, cell, problem, "nosmt on the kernel's command line, or off in the firmware")
    return Finding("smt", NONE if smt == "" else OK, cell)


def check_mitigations(settings: NodeSettings, sys: pathlib.Path = side_channels.SYS) -> Finding:
    """Check that the kernel does something against each fault of this processor that it knows.

    Args:
        settings: say what the site promises.
        sys: where the kernel tells.
    """
    try:
        weak = side_channels.read_weaknesses(sys)
    except SiteFault as error:
        state = BAD if settings.side_channels == side_channels.STRICT else NONE
        return Finding("mitigations", state, "?", str(error) if state == BAD else "")
    if not weak:
        return Finding("mitigations")
    if settings.side_channels == side_channels.OFF:
        return Finding("mitigations", cell=f"{len(weak)} open")
    problem = "; ".join(f"{name}: {text}" for name, text in list(weak.items())[:_SHOWN])
    remedy = "new microcode, and no mitigations=off on the kernel's command line"
    return Finding("mitigations", _grave(settings), str(len(weak)), problem, remedy)


def check_ksm(settings: NodeSettings, sys: pathlib.Path = side_channels.SYS) -> Finding:
    """Check that no equal pages of processes are merged; guests of ours are left out of it in any case.

    Args:
        settings: say what the site promises.
        sys: where the kernel tells.
    """
    if not side_channels.merges_pages(sys):
        return Finding("ksm", cell="off")
    if settings.side_channels == side_channels.OFF:
        return Finding("ksm", cell="on")
    problem = "KSM merges equal pages of other processes, though not of guests of jobs"
    return Finding("ksm", _grave(settings), "on", problem, "echo 2 >/sys/kernel/mm/ksm/run, and stop ksmtuned")


def checks(settings: NodeSettings) -> dict[str, t.Callable[[], Finding]]:
    """Return the checks of this module, by their names."""
    looks: dict[str, t.Callable[[NodeSettings], Finding]] = {
        "smt": check_smt,
        "mitigations": check_mitigations,
        "ksm": check_ksm,
    }
    return {name: functools.partial(look, settings) for name, look in looks.items()}


def _grave(settings: NodeSettings) -> str:
    return BAD if settings.side_channels == side_channels.STRICT else WARN


def _wanted_core_scheduling(configuration: pathlib.Path) -> str:
    try:
        found = _SCHED_CORE.findall(configuration.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return str(found[-1]) if found else ""
