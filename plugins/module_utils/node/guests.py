# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node's part of a job: its guests made, and gone again."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import pathlib
import secrets
import shutil
import typing as t
import uuid

from .. import records
from ..errors import NodeFault, UserFault, VTorqueError
from ..guestspec import GuestFacts, GuestSpec, NodePart, from_dict, to_dict
from ..records import Deadline, Timings, job_key
from . import images, locks, neighbours, seed, slots
from .console import Console, plain
from .domain import Capabilities, Domains, DomainSpec, kvm_usable, render_xml
from .readiness import Awaited, wait_ready, write_known_hosts
from .remains import Remain, end_processes, remains, remains_without_libvirt
from .settings import NodeSettings

RESERVE_S = 8.0
"""Seconds of the deadline that are kept to undo what was begun, and to say so."""
_DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


@dataclasses.dataclass(frozen=True)
class Kept:
    """What a guest's directory says of it, from before its domain begins: root wrote it."""

    rank: int
    slot: int
    name: str
    mac: str
    uuid: str
    token: str
    owner_uid: int
    spec_digest: str


@dataclasses.dataclass
class _Guest:
    spec: GuestSpec
    kept: Kept
    directory: pathlib.Path
    timings: Timings
    image: images.Image


def present(part: NodePart, settings: NodeSettings, deadline: Deadline) -> tuple[GuestFacts, ...]:
    """See to it that this node's guests of a start run and are ready.

    Called again it finds them and answers the same.  When it fails, nothing of this start is left.

    Args:
        part: what is asked; its guests.
        settings: this node's own word.
        deadline: when there must be an answer.

    Returns:
        The guests, by rank.

    Raises:
        VTorqueError: they are not; the class says whose fault it is.
    """
    key = job_key(part.job_id, part.start)
    if not part.guests:
        raise VTorqueError(f"present for {key}", "no guest is asked for")
    locks.refuse_if_over(settings, key)
    with _disk_judged(settings), locks.held(locks.start_lock(settings, key), settings, deadline):
        locks.refuse_if_over(settings, key)
        with Domains(settings.libvirt_uri) as domains:
            domains.listen()
            living = _living(part, settings, domains)
            if living:
                return living
            preflight(part, settings, domains.capabilities())
            _remove(part.job_id, part.start, settings, domains)
            with _undone_on_failure(part, settings, domains):
                return _make(part, settings, domains, deadline)


def absent(job_id: str, start: int, settings: NodeSettings, deadline: Deadline) -> tuple[str, ...]:
    """See to it that nothing of a start is left on this node; from now on `present` refuses it.

    Returns:
        What was removed, as words; () when there was nothing.

    Raises:
        NodeFault: libvirt does not answer, so that it is not known what is left.
        VTorqueError: something would not go.
    """
    key = job_key(job_id, start)
    lock = locks.start_lock(settings, key)
    with _disk_judged(settings):
        locks.bury(settings, key)
    with _disk_judged(settings), locks.held(lock, settings, deadline):
        with Domains(settings.libvirt_uri) as domains:
            removed = _remove(job_id, start, settings, domains)
        lock.unlink(missing_ok=True)
    return removed


def left(settings: NodeSettings, job_id: str | None = None, start: int | None = None) -> tuple[str, ...]:
    """What of vTorque's guests is here, as words; that libvirt does not answer is one of them.

    Args:
        job_id: only of this job; None: of any, and what cannot be told whose it is.
        start: only of this start of it.
    """
    try:
        with Domains(settings.libvirt_uri) as domains:
            there: tuple[Remain | str, ...] = remains(settings, domains)
    except NodeFault as error:
        there = (f"unknown: {error}", *remains_without_libvirt(settings))
    if job_id is None:
        return tuple(map(str, there))
    prefix = job_key(job_id, start or 0).rpartition(".")[0]

    def asked_for(thing: Remain | str) -> bool:
        if isinstance(thing, str):
            return True
        return thing.key == f"{prefix}.{start}" if start is not None else thing.key.rpartition(".")[0] == prefix

    return tuple(str(thing) for thing in there if asked_for(thing))


@contextlib.contextmanager
def _disk_judged(settings: NodeSettings) -> t.Iterator[None]:
    """Tell a local disk that is full or broken, which is the node's fault, from whatever else the system refuses."""
    try:
        yield
    except (OSError, VTorqueError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in _DISK_FAULTS:
            raise NodeFault(
                f"the disk of {settings.state_dir} on {settings.node_name}",
                str(cause),
                "free some space, or see to the disk",
                cause="disk",
            ) from error
        if isinstance(error, OSError):
            raise VTorqueError(f"{settings.node_name} could not do it", str(error)) from error
        raise


# -- before anything is made


def preflight(part: NodePart, settings: NodeSettings, offered: Capabilities) -> None:
    """Can this node make these guests at all?

    Raises:
        NodeFault: it cannot; proved here.
        UserFault: the request asks for what this site does not allow.
    """
    neighbours.bridge_index(settings.bridge)
    for spec in part.guests:
        if spec.fs_type != "sharedfs":
            raise UserFault(f"fs_type={spec.fs_type}", "not available on this site yet", "fs_type=sharedfs")
        _check_virtualisation(spec, settings, offered)
    wanted = sum(spec.ram_mib for spec in part.guests)
    have = _memory_mib() - settings.host_ram_mib
    if wanted > have:
        raise UserFault(
            f"ram: {wanted} MiB for the guests on {settings.node_name}", f"the node has {max(0, have)} MiB for guests",
            f"{settings.host_ram_mib} MiB are kept for the host",
        )  # fmt: skip


def _check_virtualisation(spec: GuestSpec, settings: NodeSettings, offered: Capabilities) -> None:
    if spec.hypervisor == "qemu":
        if not settings.allow_emulation:
            raise UserFault("hypervisor=qemu", "this site allows no software emulation", "hypervisor=kvm")
        if "qemu" not in offered.domains.get(spec.arch, ()):
            raise NodeFault(
                f"arch={spec.arch}",
                f"libvirt on {settings.node_name} cannot emulate it",
                "install its qemu-system",
                cause="virtualisation",
            )
        return
    why = kvm_usable(spec.arch, offered)
    if why:
        raise NodeFault(
            f"{settings.node_name} has no usable virtualisation", why,
            "switch it on in the firmware, load kvm; hypervisor=qemu is software emulation, where the site allows it",
            cause="virtualisation",
        )  # fmt: skip


def _memory_mib() -> int:
    first = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()[0]
    return int(first.split()[1]) >> 10


# -- making


def _living(part: NodePart, settings: NodeSettings, domains: Domains) -> tuple[GuestFacts, ...]:
    """The guests of this start, when all of them run, are ready, and are what is asked for; else ()."""
    directory = settings.start_dir(part.job_id, part.start)
    found = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        kept = _read_kept(path)
        facts = domains.facts(path.name)
        if kept is None or facts is None or facts.state != "running" or facts.uuid != kept.uuid:
            return ()
        with contextlib.suppress(FileNotFoundError):
            ready = from_dict(GuestFacts, records.read_json(path / "facts.json"))
            found[(kept.rank, kept.spec_digest)] = ready
    wanted = {(spec.rank, _digest(spec, part)) for spec in part.guests}
    return tuple(found[key] for key in sorted(found)) if set(found) == wanted else ()


def _make(part: NodePart, settings: NodeSettings, domains: Domains, deadline: Deadline) -> tuple[GuestFacts, ...]:
    guests = _plan(part, settings, domains, deadline)
    names = tuple(guest.kept.name for guest in guests for _vcpu in range(guest.spec.vcpus))
    here = neighbours.node_address(settings.bridge)
    for guest in guests:
        locks.refuse_if_over(settings, job_key(part.job_id, part.start))
        _start(guest, part, settings, domains, deadline, here=here, node_file=names)
    macs = {guest.kept.mac for guest in guests}
    neighbours.flush(macs, settings.bridge)
    waiting = [_awaited(guest, len(guests), settings, deadline) for guest in guests]
    until = Deadline.after(min(settings.ready_timeout_s, max(0.0, deadline.left_s() - RESERVE_S)))
    with neighbours.Neighbours(macs, bridge=settings.bridge, leases=settings.leases_files) as candidates:
        proven = wait_ready(
            waiting, domains, candidates, until, ssh=settings.ssh, ssh_timeout_s=settings.ssh_timeout_s
        )  # fmt: skip
    locks.refuse_if_over(settings, job_key(part.job_id, part.start))
    facts = []
    for guest in guests:
        timings = {phase: round(seconds, 4) for phase, seconds in guest.timings.seconds.items()}
        one = GuestFacts(guest.spec.rank, guest.kept.name, guest.kept.mac, proven[guest.kept.name], timings)
        records.write(guest.directory / "facts.json", json.dumps(to_dict(one)))
        facts.append(one)
    return tuple(sorted(facts, key=lambda one: one.rank))


def _plan(part: NodePart, settings: NodeSettings, domains: Domains, deadline: Deadline) -> list[_Guest]:
    """Slots, names and directories of all guests, before the first is made: each is told of all."""
    found = {spec.image: images.find(spec.image, settings.pool) for spec in part.guests}
    for spec in part.guests:
        image = found[spec.image]
        if image.arch and image.arch != spec.arch:
            raise UserFault(f"arch={spec.arch}", f"image {image.name} is for {image.arch}")
    settings.mac(0)  # refuses a node without a number before anything is there
    names = {facts.name for facts in domains.list(ours=False)}

    def busy(slot: int) -> bool:
        return settings.guest_name(slot) in names or (neighbours.SYS_NET / settings.tap_name(slot)).exists()

    key = job_key(part.job_id, part.start)
    given = slots.take(settings, key, len(part.guests), deadline, busy=busy)
    guests = []
    for spec, slot in zip(part.guests, given, strict=True):
        kept = Kept(
            spec.rank, slot, settings.guest_name(slot), settings.mac(slot), str(uuid.uuid4()), secrets.token_hex(16),
            part.owner.uid, _digest(spec, part),
        )  # fmt: skip
        directory = settings.start_dir(part.job_id, part.start) / kept.name
        _make_directory(settings, directory)
        records.write_json(directory / "guest.json", kept)
        guests.append(_Guest(spec, kept, directory, Timings(), found[spec.image]))
    return guests


def _make_directory(settings: NodeSettings, directory: pathlib.Path) -> None:
    """Root's alone, and passable: qemu's own user reaches what libvirt gives it, and lists nothing."""
    try:
        for path in (settings.state_dir, settings.guests_dir, directory.parent, directory):
            path.mkdir(mode=0o711, parents=True, exist_ok=True)
            path.chmod(0o711)
    except OSError as error:
        raise NodeFault(f"{directory} was not made", error.strerror or str(error), cause="disk") from error


def _digest(spec: GuestSpec, part: NodePart) -> str:
    """Of all that a guest is made of; keys are part of it."""
    text = json.dumps([to_dict(spec), to_dict(part.owner)], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _start(
    guest: _Guest, part: NodePart, settings: NodeSettings, domains: Domains, deadline: Deadline, *,
    here: str, node_file: tuple[str, ...],
) -> None:  # fmt: skip
    """Disk, seed, domain; the guest boots from here on."""
    directory, kept, spec, image = guest.directory, guest.kept, guest.spec, guest.image
    with guest.timings.phase("disk"):
        images.make_overlay(image, directory / "disk.qcow2", deadline, reserved_bytes=_promised(settings))
        boot = _own_kernel(image, directory)
    with guest.timings.phase("seed"):
        told = seed.Seed(
            name=kept.name, instance_id=kept.uuid, mac=kept.mac, distro=spec.distro, job_id=part.job_id,
            token=kept.token, node_address=here, torque_home=str(settings.torque_home), owner=part.owner,
            host_key=spec.host_key, authorized_key=spec.authorized_key, node_file=node_file,
            domain=settings.domain or "", name_servers=_some(settings.name_server),
            search_domains=_some(settings.search_domain), ntp_servers=settings.ntp_servers,
        )  # fmt: skip
        seed.write_iso(seed.render(told, settings.template_dir), directory / "seed.iso")
        write_known_hosts(directory / "known_hosts", spec.host_key.public)
    with guest.timings.phase("start"):
        (directory / "console.log").touch(mode=0o600)
        xml = render_xml(
            DomainSpec(
                name=kept.name, uuid=kept.uuid, job_id=part.job_id, start=part.start, owner=part.owner.user,
                rank=spec.rank, node=settings.node_name, hypervisor=spec.hypervisor, arch=spec.arch,
                ram_mib=spec.ram_mib, vcpus=spec.vcpus, disk=directory / "disk.qcow2", image=image.path,
                image_format=image.format, seed=directory / "seed.iso", console=directory / "console.log",
                bridge=settings.bridge, tap=settings.tap_name(kept.slot), mac=kept.mac, boot_mode=boot.mode,
                kernel=boot.kernel, initrd=boot.initrd, cmdline=boot.cmdline, nvram=directory / "nvram.fd",
                network_filter=settings.network_filter,
            ),
            site_dir=settings.template_dir,
        )  # fmt: skip
        records.write(directory / "domain.xml", xml)
        domains.create(xml)


def _some(text: str | None) -> tuple[str, ...]:
    return (text,) if text else ()


def _own_kernel(image: images.Image, directory: pathlib.Path) -> images.Boot:
    """Copies of kernel and initrd: libvirt chowns the files that a domain boots from, and knows no exception."""
    kernel, initrd = image.boot.kernel, image.boot.initrd
    if kernel is not None:
        kernel = pathlib.Path(shutil.copyfile(kernel, directory / "vmlinuz"))
    if initrd is not None:
        initrd = pathlib.Path(shutil.copyfile(initrd, directory / "initrd"))
    return dataclasses.replace(image.boot, kernel=kernel, initrd=initrd)


def _promised(settings: NodeSettings) -> int:
    """Bytes by which the overlays on this node may still grow: nothing else may count on them."""
    promised = 0
    guests = [guest for start in _entries(settings.guests_dir) for guest in _entries(start)]
    for overlay in (guest / "disk.qcow2" for guest in guests):
        with contextlib.suppress(OSError):
            with overlay.open("rb") as stream:
                header = stream.read(32)
            # qcow2: the size that a guest sees is a big-endian number at byte 24 (QEMU, docs/interop/qcow2.txt)
            promised += max(0, int.from_bytes(header[24:32], "big") - overlay.stat().st_blocks * 512)
    return promised


def _entries(directory: pathlib.Path) -> list[pathlib.Path]:
    """What is in a directory; nothing when it has just been taken away, as another start's may be at any time."""
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _awaited(guest: _Guest, count: int, settings: NodeSettings, deadline: Deadline) -> Awaited:
    expected: tuple[neighbours.Candidate, ...] = ()
    if settings.ip_to_mac_script is not None:
        address = neighbours.ask_static_map(
            settings.ip_to_mac_script, settings.node_name, count, guest.kept.slot, deadline
        )
        expected = (neighbours.Candidate(address, "static map"),)
    console = Console(guest.directory / "console.log", guest.kept.token)
    return Awaited(
        guest.kept.name, guest.kept.mac, guest.directory / "known_hosts", console, guest.timings, expected
    )  # fmt: skip


# -- removing


@contextlib.contextmanager
def _undone_on_failure(part: NodePart, settings: NodeSettings, domains: Domains) -> t.Iterator[None]:
    """Whatever ends the making early, a signal too, takes everything of this start with it."""
    done = False
    try:
        yield
        done = True
    finally:
        if not done:
            # what failed is told; what could not be removed is told by `left`
            with contextlib.suppress(VTorqueError):
                _remove(part.job_id, part.start, settings, domains)


def _remove(job_id: str, start: int, settings: NodeSettings, domains: Domains) -> tuple[str, ...]:
    """Take away everything of a start: domains first, slots last, so that no name or MAC is free too early."""
    key = job_key(job_id, start)
    removed: list[str] = []
    macs: set[str] = set()
    for facts in domains.list():
        if facts.mark and (facts.mark.job_id, facts.mark.start) == (job_id, start):
            macs |= set(facts.macs)
            if domains.destroy(facts.name):
                removed.append(f"domain {facts.name}")
    removed += [f"process {pid}" for pid in end_processes(settings.guests_dir, key)]
    directory = settings.start_dir(job_id, start)
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        kept = _read_kept(path)
        if kept is not None:
            macs.add(kept.mac)
        _keep_console(path, settings.record_dir(job_id, start), settings, kept.owner_uid if kept else None)
    _delete(directory, removed)
    if macs:
        # without a bridge there is nothing to forget
        with contextlib.suppress(NodeFault):
            neighbours.flush(macs, settings.bridge)
    removed += [f"slot {slot}" for slot in slots.free(settings, key)]
    return tuple(removed)


def _delete(directory: pathlib.Path, removed: list[str]) -> None:
    if not directory.is_dir():
        return
    try:
        shutil.rmtree(directory)
    except OSError as error:
        raise NodeFault(f"{directory} was not removed", str(error), cause="disk") from error
    removed.append(f"directory {directory.name}")


def _read_kept(directory: pathlib.Path) -> Kept | None:
    """None: whoever made the directory did not come far enough to say what it is for."""
    try:
        return Kept(**records.read_json(directory / "guest.json"))
    except (FileNotFoundError, NotADirectoryError, TypeError, VTorqueError):
        return None


def _keep_console(guest: pathlib.Path, target: pathlib.Path, settings: NodeSettings, owner_uid: int | None) -> None:
    """The end of a console outlives its guest, harmless on a terminal; that it cannot be kept stops no removal."""
    try:
        with (guest / "console.log").open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - settings.console_keep_bytes))
            text = stream.read(settings.console_keep_bytes).decode("utf-8", "replace")
        if text:
            target.parent.mkdir(mode=0o711, exist_ok=True)
            target.mkdir(mode=0o711, exist_ok=True)
            lines = "\n".join(map(plain, text.splitlines()))
            records.write(target / f"{guest.name}.console.log", f"{lines}\n", reader_uid=owner_uid)
    except (OSError, VTorqueError):
        return
