# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of vTorque's guests is on this node: domains, directories, slots, processes, network devices."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import select
import signal

from ..errors import NodeFault
from ..frozen import frozen
from ..records import job_key
from . import disk_server, network_rules, slots, virtiofsd
from .domain import Domains
from .neighbours import SYS_NET
from .settings import NodeSettings

PROC = pathlib.Path("/proc")
KILLED_S = 10.0
BARE = "ssh access"


@frozen
class Remain:
    """One thing that is there.

    Attributes:
        kind: `domain`, `directory`, `slot`, `process`, `network device`, `network rules`, or `ssh access` of a host
            that stays bare.
        name: which one.
        key: `records.job_key` of the start it belongs to; "" when that cannot be told.
    """

    kind: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" of {self.key}" if self.key not in ("", self.name) else "")


def remains(settings: NodeSettings, domains: Domains) -> tuple[Remain, ...]:
    """Everything that is there, of whatever start.

    Raises:
        NodeFault: libvirt does not answer; then it is not known what is there.
    """
    found = [
        Remain("domain", facts.name, job_key(facts.mark.job_id, facts.mark.start))
        for facts in domains.list() if facts.mark
    ]  # fmt: skip
    return (*found, *remains_without_libvirt(settings))


def remains_without_libvirt(settings: NodeSettings) -> tuple[Remain, ...]:
    """What can be seen without asking libvirt."""
    owners = slots.taken(settings)
    found = [Remain("slot", str(slot), owner.partition("/")[0]) for slot, owner in owners.items()]
    if settings.guests_dir.is_dir():
        found += [Remain("directory", path.name, path.name) for path in sorted(settings.guests_dir.iterdir())]
    if settings.bare_dir.is_dir():
        found += [Remain(BARE, path.name, path.name) for path in sorted(settings.bare_dir.iterdir())]
    found += [Remain("process", str(pid), key) for pid, key in processes(settings.guests_dir)]
    for device in sorted(SYS_NET.glob("vtq[0-9]*")):
        owner = owners.get(int(device.name[3:]), "") if device.name[3:].isdecimal() else ""
        found.append(Remain("network device", device.name, owner.partition("/")[0]))
    try:
        for name in network_rules.held(settings):
            found.append(Remain("network rules", name, owners.get(int(name[3:]), "").partition("/")[0]))
    except NodeFault as error:
        found.append(Remain("network rules", f"unknown: {error}", ""))
    return tuple(found)


def processes(guests_dir: pathlib.Path) -> tuple[tuple[int, str], ...]:
    """Every qemu that has a guest's disk open, every virtiofsd and qemu-nbd of ours, with the key of the guest's start.

    Its arguments only say where to look: anybody can write any.  The open disk proves it, for nobody but root and
    qemu's own user can open one; so does the log of the others, which only root can open.  Other files of a guest are
    open to all who know their names.
    """
    pattern = re.compile(re.escape(f"{guests_dir}/") + r"([^/\0]+)/")
    found = []
    for process in sorted(PROC.glob("[0-9]*"), key=lambda path: int(path.name)):
        # a process may end while it is looked at
        with contextlib.suppress(OSError):
            arguments = (process / "cmdline").read_bytes().decode("utf-8", "replace")
            owner = pattern.search(arguments)
            program = arguments.partition("\0")[0]
            kinds = ((virtiofsd.NAME, r"vtorque[0-9]+\.log"), (disk_server.NAME, disk_server.LOGS))
            file = next((name for word, name in kinds if program.startswith(word)), "")
            file = file or (r"disk\.qcow2" if "qemu" in program else "")
            if owner and file and _has_open(process, f"{guests_dir}/{owner[1]}", file):
                found.append((int(process.name), owner[1]))
    return tuple(found)


def _has_open(process: pathlib.Path, directory: str, file: str) -> bool:
    # the kernel adds a word where the file was removed
    path = re.compile(re.escape(directory) + rf"/[^/]+/{file}( \(deleted\))?")
    return any(path.fullmatch(str(descriptor.readlink())) for descriptor in (process / "fd").iterdir())


def end_processes(guests_dir: pathlib.Path, key: str) -> tuple[int, ...]:
    """End what of a start libvirt does not know: a qemu that outlived libvirt's memory of it, virtiofsd.

    Raises:
        NodeFault: one did not end.
    """
    ended = []
    for pid in [pid for pid, owner in processes(guests_dir) if owner == key]:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            # the number may have become another's before we had the handle
            if (pid, key) in processes(guests_dir):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                if not select.select([handle], [], [], KILLED_S)[0]:
                    raise NodeFault(f"process {pid} of {key}", f"did not end within {KILLED_S:.0f} s of a KILL")
                ended.append(pid)
        except ProcessLookupError:
            continue
        finally:
            os.close(handle)
    return tuple(ended)
