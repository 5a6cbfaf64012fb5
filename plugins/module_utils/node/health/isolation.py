# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's rows on side channels: threads of cores and who shares them, faults, merged pages, and caches."""

from __future__ import annotations

import functools
import pathlib
import re
import typing as t

from ...errors import SiteFault
from ...system.process import prctl
from ...wire.health_report import BAD, NONE, OK, WARN, Finding
from ..placement import cache_shares
from ..state.settings import NodeSettings
from ..system import side_channels

QEMU_CONF = pathlib.Path("/etc/libvirt/qemu.conf")
_SCHED_CORE = re.compile(r"""^\s*sched_core\s*=\s*["']([a-z]{1,20})["']""", re.MULTILINE)
_SHOWN = 5


def check_smt(settings: NodeSettings, sys: pathlib.Path = side_channels.SYS) -> Finding:
    """Check whether cores have several threads.

    Args:
        settings: say what the site promises.
        sys: where the kernel tells.
    """
    smt = side_channels.read_smt(sys)
    cell = "off" if smt in side_channels.SMT_IS_OFF else smt or "?"
    if settings.side_channels == side_channels.STRICT and cell != "off":
        problem = "side_channels: strict refuses all jobs here, since cores have several threads"
        return Finding("smt", BAD, cell, problem, "nosmt on the kernel's command line, or off in the firmware")
    return Finding("smt", NONE if smt == "" else OK, cell)


def check_core_scheduling(
    settings: NodeSettings,
    sys: pathlib.Path = side_channels.SYS,
    configuration: pathlib.Path = QEMU_CONF,
    able: t.Callable[[], bool] = prctl.has_core_scheduling,
) -> Finding:
    """Check that threads of guests can be kept apart from others on a core, and that libvirt wants no more than that.

    Args:
        settings: say what the site promises.
        sys: where the kernel tells.
        configuration: libvirt's, of qemu.
        able: asks the kernel for core scheduling.
    """
    can, wanted = able(), _wanted_core_scheduling(configuration)
    if wanted not in ("", "none") and not can:
        problem = f'sched_core = "{wanted}" in {configuration}, and the kernel has none: libvirtd will not start again'
        return Finding("sched_core", BAD, wanted, problem, "take the line away before libvirtd is restarted")
    if can:
        wants = settings.side_channels in side_channels.WHOLE_CORES
        return Finding("sched_core", cell="on" if wants else wanted or "unset")
    if side_channels.read_smt(sys) in side_channels.SMT_IS_OFF:
        return Finding("sched_core", NONE, "no threads")
    if settings.side_channels == side_channels.CORES:
        problem = "the kernel has no core scheduling: threads of the node may run beside a guest, on one core with it"
        remedy = "boot a kernel with CONFIG_SCHED_CORE, or switch threads of cores off (nosmt)"
        return Finding("sched_core", WARN, "no", problem, remedy)
    return Finding("sched_core", NONE, "no")


def check_caches(
    settings: NodeSettings,
    resctrl: pathlib.Path = cache_shares.RESCTRL,
    file_systems: pathlib.Path = cache_shares.FILE_SYSTEMS,
) -> Finding:
    """Check that guests can have parts of the processors' last caches, where the site is strict and the host able.

    Args:
        settings: say what the site promises.
        resctrl: where the kernel's groups are.
        file_systems: which the kernel has.
    """
    if not cache_shares.has_kernel(file_systems):
        return Finding("resctrl", NONE, "no")
    free = cache_shares.read_free(resctrl)
    least = min(free.values(), key=lambda one: one.free, default=None)
    problem = remedy = ""
    if least is None:
        cell = "unused"
        problem = f"the kernel can divide caches or their bandwidth, and {resctrl} has no groups of whole L3 caches"
        remedy = f"mount -t resctrl resctrl {resctrl}, without cdp; or live with caches that guests share"
    else:
        cell = f"{least.free} of {least.total}"
        if not least.free:
            problem = "the default group has all of an L3 cache, or other groups have the rest: guests get no part"
            remedy = f"give the node itself a part: echo 'L3:0=3;1=3' >{resctrl}/schemata (docs/admin/security.md)"
    if problem and settings.side_channels == side_channels.STRICT:
        return Finding("resctrl", WARN, cell, problem, remedy)
    return Finding("resctrl", cell=cell)


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
        "sched_core": check_core_scheduling,
        "mitigations": check_mitigations,
        "ksm": check_ksm,
        "resctrl": check_caches,
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
