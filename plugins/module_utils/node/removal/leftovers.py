# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of vTorque's guests is on this node: domains, directories, slots, processes, network devices."""

from __future__ import annotations

import contextlib
import errno
import functools
import pathlib
import re
import signal
import typing as t

from ...effects import leaves_nothing
from ...errors import NodeFault, VTorqueError
from ...frozen import frozen
from ...state.layout import job_key, start_of
from ...system.clock import Deadline
from ...system.process.processes import ProcessHandle, open_process, wait_all
from ...text import printable
from ...time_budget import KILLED_END_S
from ..devices import host_devices, leases, shared_region
from ..domain.connection import Domains
from ..network import nft_rules, private
from ..network.addresses import SYS_NET
from ..state import qemu_user, slots
from ..state.directories import entries, guest_directories
from ..state.guest_file import read_guest_file
from ..state.settings import NodeSettings
from ..storage import user_disk, virtiofsd

PROC = pathlib.Path("/proc")
BARE = "ssh access"
_NOBODY_LOOKED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What the system says where the one who looks has nothing left to look with."""
_UIDS = re.compile(rb"^Uid:\t([0-9]+)\t([0-9]+)\t([0-9]+)\t", re.MULTILINE)
"""The kernel writes a process's own name, which comes before, without line ends."""


@frozen
class Leftover:
    """One thing that is there.

    Attributes:
        kind: `domain`, `directory`, `slot`, `process`, `device` of the host, `huge pages`, `interrupts`, `region` of
            memory, `private network`, `network device`, `network rules`, or `ssh access` of a host that stays bare.
        name: which one.
        key: `state.layout.job_key` of the start it belongs to; "" when that cannot be told.
    """

    kind: str
    name: str
    key: str

    def __str__(self) -> str:
        of = f" of {self.key}" if self.key not in ("", self.name) else ""
        return printable(f"{self.kind} {self.name}{of}")


@leaves_nothing
def list_leftovers(settings: NodeSettings, domains: Domains) -> tuple[Leftover, ...]:
    """Everything that is there, of whatever start.

    Raises:
        NodeFault: libvirt does not answer, or as `list_leftovers_without_libvirt`; then it is not known what is there.
    """
    found = [
        Leftover("domain", facts.name, job_key(facts.mark.job_id, facts.mark.start))
        for facts in domains.list()
        if facts.mark
    ]
    return (*found, *list_leftovers_without_libvirt(settings))


@leaves_nothing
def list_leftovers_without_libvirt(settings: NodeSettings) -> tuple[Leftover, ...]:
    """What can be seen without asking libvirt.

    Raises:
        NodeFault: a directory of this node cannot be read.
        VTorqueError: the processes cannot be looked at.
    """
    owners = slots.read_slots(settings)
    found = [Leftover("slot", str(slot), owner.partition("/")[0]) for slot, owner in owners.items()]
    devices = (*leases.read_leases(settings), *host_devices.find_lost(settings))
    found += [Leftover("device", lease.device, lease.key) for lease in devices]
    found += [Leftover("huge pages", path.name, path.name) for path in entries(settings.pages_dir)]
    found += [Leftover("interrupts", path.name, path.name) for path in entries(settings.interrupts_dir)]
    found += [Leftover("region", name, "") for name in shared_region.find_lost(settings)]
    found += [Leftover("private network", key, key) for key in private.keys(settings)]
    found += [Leftover("network device", name, "") for name in private.find_lost(settings)]
    found += [Leftover("directory", path.name, path.name) for path in entries(settings.guests_dir)]
    found += [Leftover(BARE, path.name, path.name) for path in entries(settings.bare_dir)]
    found += [Leftover("process", str(pid), key) for pid, key in processes(settings)]
    for device in sorted(SYS_NET.glob("vtq[0-9]*")):
        owner = owners.get(settings.slot_of(device.name) or 0, "")
        found.append(Leftover("network device", device.name, owner.partition("/")[0]))
    try:
        for name in nft_rules.list_confined_devices(settings):
            found.append(Leftover("network rules", name, owners.get(settings.slot_of(name) or 0, "").partition("/")[0]))
    except NodeFault as error:
        found.append(Leftover("network rules", f"unknown: {error}", ""))
    return tuple(found)


def processes(settings: NodeSettings) -> tuple[tuple[int, str], ...]:
    """Every qemu that has a guest's disk open, every virtiofsd and qemu-nbd of ours, with the key of the guest's start.

    Nothing that a process says of itself is believed for its own sake: anybody can write any arguments, open what
    they may not read (O_PATH), and in a mount namespace of their own make any path, which the kernel tells as it is
    there.  They cannot choose their uids, which the kernel tells in our numbers, whatever user namespace they are in.
    So:

    * A qemu is root's or the user's as whom libvirt runs it (`qemu_user.py`), and the program is a qemu: one that
      becomes root for whoever calls it (sudo) keeps its caller's words and descriptors.
    * virtiofsd and qemu-nbd are the job's user.  They are believed of the guests that are here and are theirs by root's
      record of them, and of no other; without that record they are not found, and end with their qemu.

    The descriptors are only read as paths: the files may lie on a file system of the user's, which need not answer.

    Raises:
        NodeFault: a directory of this node cannot be read.
        VTorqueError: this process has no descriptor or memory left to look with.
    """
    known = _ProcessOwners(qemu_user.load_uids(settings), _guests_here(settings))
    found = []
    for process in sorted(PROC.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            # first of all: who is root is so already when their words are read
            uid = _uid(process)
            if uid in known.uids and (key := _key_of(process, uid, known, settings.guests_dir)):
                found.append((int(process.name), key))
        except OSError as error:
            # a process may end while it is looked at, and a user can choose names that are too long to be told
            if error.errno in _NOBODY_LOOKED:
                raise VTorqueError("what runs on this node cannot be seen", str(error)) from error
    return tuple(found)


@frozen
class _Guest:
    """Whose the processes of a guest are; None: that is not known.

    Attributes:
        owner_uid: the job's user.
        disk_uid: who has its disk: libvirt gives it to qemu's user.
    """

    owner_uid: int | None
    disk_uid: int | None


@frozen
class _ProcessOwners:
    """Who may have processes of guests.

    Attributes:
        qemu_uids: as whom libvirt runs qemu.
        guests: that are here, by the names of their start and their own.
    """

    qemu_uids: frozenset[int]
    guests: t.Mapping[tuple[str, str], _Guest]

    @functools.cached_property
    def uids(self) -> frozenset[int | None]:
        """All of them; of others' processes nothing is read but whose they are."""
        uids = self.qemu_uids.union(*((guest.owner_uid, guest.disk_uid) for guest in self.guests.values()))
        return uids - {None}


def _key_of(process: pathlib.Path, uid: int | None, known: _ProcessOwners, guests_dir: pathlib.Path) -> str:
    """The key of the start whose guest's a process is; "" when it is none's, or that is not proved."""
    arguments = (process / "cmdline").read_bytes().decode("utf-8", "replace")
    named = re.search(re.escape(f"{guests_dir}/") + r"([^/\0]+)/([^/\0]+)", arguments)
    if not named or not _is_key(named[1]):
        return ""
    guest = known.guests.get((named[1], named[2]), _Guest(None, None))
    program = arguments.partition("\0")[0]
    kinds = ((virtiofsd.NAME, r"vtorque[0-9]+\.log"), (user_disk.NAME, user_disk.LOGS))
    file = next((name for word, name in kinds if program.startswith(word)), "")
    if file:
        believed = uid == guest.owner_uid
    else:
        file = r"disk\.qcow2"
        believed = (uid in known.qemu_uids or uid == guest.disk_uid) and _is_qemu(process, program)
    return named[1] if believed and _has_open(process, f"{guests_dir}/{named[1]}", file) else ""


def _guests_here(settings: NodeSettings) -> dict[tuple[str, str], _Guest]:
    """As their directories tell, where only root writes."""
    found = {}
    for directory in guest_directories(settings.guests_dir):
        guest_file, disk_uid = None, None
        # what one cannot say of its processes keeps no other from going: it is found by its directory itself
        with contextlib.suppress(OSError):
            guest_file = read_guest_file(directory)
        with contextlib.suppress(OSError):
            disk_uid = (directory / "disk.qcow2").lstat().st_uid
        found[directory.parent.name, directory.name] = _Guest(guest_file.owner_uid if guest_file else None, disk_uid)
    return found


def _uid(process: pathlib.Path) -> int | None:
    """Whose a process is; None: its real, effective and saved uids differ.

    Not by the owner of the directory, which is root where a process may not be dumped.
    """
    found = _UIDS.search((process / "status").read_bytes())
    uids = set(map(int, found.groups())) if found else set()
    return uids.pop() if len(uids) == 1 else None


def _is_qemu(process: pathlib.Path, program: str) -> bool:
    return "qemu" in program and "qemu" in str((process / "exe").readlink())


def _is_of(pid: int, uids: t.Collection[int | None]) -> bool:
    with contextlib.suppress(OSError):
        return _uid(PROC / str(pid)) in uids
    return False


def _is_key(text: str) -> bool:
    """Whatever names a start is shown, sorted and removed by its name."""
    with contextlib.suppress(VTorqueError, ValueError):  # a number may have too many digits to be one
        named = start_of(text)
        return named is not None and job_key(*named) == text
    return False


def _has_open(process: pathlib.Path, directory: str, file: str) -> bool:
    # the kernel adds a word where the file was removed
    path = re.compile(re.escape(directory) + rf"/[^/]+/{file}( \(deleted\))?")
    for descriptor in (process / "fd").iterdir():
        # one that is closed meanwhile, as a process at work does all the time, says nothing of the others
        with contextlib.suppress(OSError):
            if path.fullmatch(str(descriptor.readlink())):
                return True
    return False


def _belongs(pid: int, key: str, known: _ProcessOwners, guests_dir: pathlib.Path) -> bool:
    """Return whether a process is of this start."""
    process = PROC / str(pid)
    uid = _uid(process)
    return uid in known.uids and _key_of(process, uid, known, guests_dir) == key


def end_servers(guest: pathlib.Path, settings: NodeSettings) -> None:
    """End what serves a guest whose qemu has gone: a virtiofsd or qemu-nbd that it had not called yet waits for ever.

    Args:
        guest: its directory.
        settings: NodeSettings of this node.

    Raises:
        VTorqueError: what runs on this node cannot be seen.
    """
    key, known = guest.parent.name, _ProcessOwners(qemu_user.load_uids(settings), _guests_here(settings))
    begins = tuple(f"{name}:{guest}/".encode() for name in (virtiofsd.NAME, user_disk.NAME))
    with contextlib.ExitStack() as handles:
        killed: list[ProcessHandle] = []
        for pid in [pid for pid, owner in processes(settings) if owner == key]:
            with contextlib.suppress(OSError):  # it ended meanwhile
                if (PROC / str(pid) / "cmdline").read_bytes().startswith(begins):
                    handle = open_process(pid, functools.partial(_belongs, pid, key, known, settings.guests_dir))
                    if handle is not None:
                        killed.append(handles.enter_context(handle))
                        handle.send(signal.SIGKILL)
        wait_all(killed, Deadline.after(KILLED_END_S))


def end_processes(settings: NodeSettings, key: str) -> dict[int, bool]:
    """End what of a start libvirt does not know: a qemu that outlived libvirt's memory of it, virtiofsd, qemu-nbd.

    What is the user's may wait within the kernel for a file server, or for a file system that is their own program,
    where a signal may not reach it: it is told to end, and does so when it hears that.  Who waited for it would let
    them hold up the removal, and keep a place for a guest.

    Returns:
        The processes that got the signal, and whether each has ended.

    Raises:
        NodeFault: a qemu did not end, which still writes into its disk.
    """
    signalled: dict[int, bool] = {}
    with contextlib.ExitStack() as handles:
        killed: list[ProcessHandle] = []
        known = _ProcessOwners(qemu_user.load_uids(settings), _guests_here(settings))
        users = {guest.owner_uid for (start, _name), guest in known.guests.items() if start == key} - known.qemu_uids
        mine = [pid for pid, owner in processes(settings) if owner == key]
        # the user may have more of theirs than we may have descriptors: first what they cannot have made
        for pid in sorted(mine, key=lambda pid: _is_of(pid, users)):
            with contextlib.suppress(OSError):  # there are no more descriptors
                handle = open_process(pid, functools.partial(_belongs, pid, key, known, settings.guests_dir))
                if handle is not None:
                    killed.append(handles.enter_context(handle))
                    handle.send(signal.SIGKILL)
        late = {handle.pid for handle in wait_all(killed, Deadline.after(KILLED_END_S))}
        signalled = {handle.pid: True for handle in killed if handle.pid not in late}
        for pid in sorted(late):
            with contextlib.suppress(OSError):
                if _uid(PROC / str(pid)) not in users:
                    raise NodeFault(f"process {pid} of {key}", f"did not end within {KILLED_END_S:.0f} s of a KILL")
            signalled[pid] = False
    return signalled
