# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this host does against jobs that watch each other through its processors, and which cores a job may have.

Sources: Documentation/ABI/testing/sysfs-devices-system-cpu (smt/control, vulnerabilities, topology) and
Documentation/admin-guide/mm/ksm.rst.
"""

from __future__ import annotations

import pathlib
import re

from ...errors import SiteFault
from ...state import event_log
from ...system.process import prctl
from . import process_figures
from .cpus import Cores, format_cores, read

OFF, EXCLUSIVE, CORES, STRICT = LEVELS = ("off", "exclusive", "cores", "strict")
"""What jobs must not share: nothing, the node, physical cores, or the node and all that is known to leak."""
ALONE = (EXCLUSIVE, STRICT)
WHOLE_CORES = (CORES, STRICT)
SYS = pathlib.Path("/sys")
SMT_IS_OFF = ("off", "forceoff", "notsupported", "notimplemented")
_WEAK = re.compile(r"(KVM: |Processor )?vulnerable", re.IGNORECASE)


def read_smt(sys: pathlib.Path = SYS) -> str:
    """Return what the kernel calls the state of its processors' threads (`on`, `off`, ...); "": it does not tell."""
    return _read(sys / "devices/system/cpu/smt/control")


def read_weaknesses(sys: pathlib.Path = SYS) -> dict[str, str]:
    """Return the faults of this processor against which the kernel does nothing, with what it says of each.

    Raises:
        SiteFault: it tells of none at all.
    """
    found = {path.name: _read(path) for path in sorted((sys / "devices/system/cpu/vulnerabilities").glob("*"))}
    if not found:
        raise SiteFault("the faults of this processor", "the kernel does not tell of them")
    return {name: text for name, text in found.items() if _WEAK.match(text)}


def merges_pages(sys: pathlib.Path = SYS) -> bool:
    """Return whether KSM merges equal pages of processes that allow it; our guests do not."""
    return _read(sys / "kernel/mm/ksm/run") == "1"


def find_whole_cores(cores: Cores, sys: pathlib.Path = SYS) -> Cores:
    """Return those of a job's processors whose siblings are the job's too: no other job runs on these physical cores.

    Args:
        cores: of the job.
        sys: where the kernel tells.

    Raises:
        SiteFault: it does not tell of one of them.
    """
    mine = set(cores)
    return tuple(core for core in cores if mine.issuperset(find_siblings(core, sys)))


def find_siblings(core: int, sys: pathlib.Path = SYS) -> Cores:
    """Return the processors of a physical core, this one among them.

    Raises:
        SiteFault: the kernel does not tell.
    """
    path = sys / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list"
    try:
        return read(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise SiteFault(f"the siblings of processor {core}", str(error)) from error


def select_whole_cores(cores: Cores, node: str, sys: pathlib.Path = SYS) -> Cores:
    """Return the whole cores of a job on a node.

    Raises:
        SiteFault: it has none, or that is not known.
    """
    whole = find_whole_cores(cores, sys)
    if not whole:
        why = f"the job has processors {format_cores(cores)}, and other jobs may have their siblings"
        raise SiteFault(f"side_channels on {node}", why, "have the batch system give whole cores to jobs")
    return whole


def find_objections(level: str, sys: pathlib.Path = SYS) -> tuple[str, ...]:
    """Return what of this host breaks the promise of a level; () where it holds.

    Args:
        level: of `LEVELS`; only `strict` promises something of the host itself.
        sys: where the kernel tells.
    """
    if level != STRICT:
        return ()
    found = []
    if (smt := read_smt(sys)) not in SMT_IS_OFF:
        found.append(f"its cores have several threads (smt/control: {smt or 'not told'})")
    if merges_pages(sys):
        found.append("KSM merges pages")
    try:
        found += [f"{name}: {text}" for name, text in read_weaknesses(sys).items()]
    except SiteFault as error:
        found.append(str(error))
    return tuple(found)


def separate_threads(guest: str, level: str) -> None:
    """Have the kernel run nothing else on a core on which a thread of a guest's process runs, where it can.

    It is a further barrier, behind cores that are the job's alone: threads of the node go without it, and a kernel that
    refuses it ends no start.

    Args:
        guest: its name; its process has begun.
        level: of `LEVELS`; those of whole cores want it.
    """
    if level not in WHOLE_CORES or not prctl.has_core_scheduling():
        return
    pid = process_figures.read_pid(guest)
    try:
        if pid is not None:
            prctl.separate_threads(pid)
    except ProcessLookupError:
        return  # who waits for the guest hears of its end
    except OSError as error:
        event_log.report(f"guest {guest} has no core scheduling: {error.strerror}", event_log.WARNING, "placement")


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()[:200]
    except OSError:
        return ""
