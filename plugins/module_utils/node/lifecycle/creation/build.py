# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests made: a slot, a disk, a seed and a domain for each, and the wait until all are ready."""

from __future__ import annotations

import functools
import json
import pathlib
import secrets
import typing as t

from ....errors import SiteFault, UserFault, VTorqueError
from ....guest_kinds import kind_of
from ....slow_libraries import load_library
from ....state import event_log
from ....state.layout import job_key
from ....system import files
from ....system.clock import Deadline, Timings
from ....system.files import make_directory
from ....system.process import process_id
from ....system.process.forking_process import Caller, DirectCaller
from ....time_budget import GUESTS_RESERVE_S, LIBVIRT_RETURN_S
from ....wire.form import to_dict
from ....wire.messages import NodePart
from ....wire.node_answers import GuestFacts
from ...cache import disk_space, wait_for_copy
from ...devices import host_devices
from ...devices.api import HostDevice, Taking
from ...domain.connection import Domains
from ...domain.domain_xml import render_xml
from ...guest import user_additions
from ...guest.console import Console
from ...guest.osv.osv_probe import OsvProbe
from ...guest.readiness import AwaitedGuest, Probe, wait_ready
from ...guest.ssh_probe import SshProbe, write_known_hosts
from ...network import addresses, cards, nft_rules, reachable
from ...placement import claims
from ...pool import images
from ...seed import seed
from ...state import checkpoint_store, slots
from ...state.guest_file import GuestFile, digest_of, write_guest_file
from ...state.settings import NodeSettings
from ...storage import overlay as overlays
from ...storage import shares, user_disk, virtiofsd
from ...storage.serving import Serving
from ...system import memory, side_channels
from ...system.cpus import Cores
from .. import room
from . import guest_memory, pinning
from .guest_forms import Guest, domain_of, facts_of, image_of, on_bridge, on_bridges, seed_of

if t.TYPE_CHECKING:
    from .warm_starts import WarmStarts

CALLS = 4
"""At most so many in flight on one connection to libvirt: more starve its keepalive, which then drops it."""
NEW_UUID = pathlib.Path("/proc/sys/kernel/random/uuid")
"""Another of version 4 at each reading (random(4)); Python's `uuid` would be loaded by each node for nothing else."""
Step = t.Callable[[str], None]
"""Called before and after all that leaves something behind, with what comes next; it raises to end the making."""


def create_guests(
    part: NodePart,
    settings: NodeSettings,
    domains: Domains,
    deadline: Deadline,
    step: Step,
    cores: Cores = (),
    caller: Caller | None = None,
) -> tuple[GuestFacts, ...]:
    """Make the guests of a start and wait until all are ready.

    What was made stays when it fails: whoever holds the lock of the start takes it away.

    Args:
        part: what is asked; its guests.
        domains: has listened since before this.
        deadline: when there must be an answer.
        step: may end the making between any two of its steps.
        cores: those of this node on which qemu and virtiofsd stay; (): all.
        caller: makes the calls that fork, which libvirt's thread beside them must not see; None: this process.

    Returns:
        The guests, by rank.

    Raises:
        VTorqueError: they are not ready; the class says whose fault it is.
    """
    linux = all(kind_of(spec.distro).linux for spec in part.guests)
    mounts = shares.plan_mounts(settings, part.owner) if linux else shares.GuestMounts()
    room.check_neighbours(settings, job_key(part.job_id, part.start), domains, cores)
    pinning.check(part, settings, domains, cores)
    wait_for_copy.wait_for_copies(part.guests, settings, deadline, step)
    here = addresses.node_address(settings.bridge, deadline)
    whom = reachable.reach(settings, here, mounts.file_servers, deadline) if settings.confine_guests else None
    devices = _take_devices(part, settings, domains, deadline, step, cores)
    step("slots and directories")
    guests = _plan(part, settings, domains, deadline, devices)
    if any(spec.vcpu_cores or spec.io_max for spec in part.guests):
        step("the cores of the guests")
        cores = pinning.claim_cores(guests, job_key(part.job_id, part.start), settings, domains, deadline, cores)
    guest_memory.check_beside_pools(guests, job_key(part.job_id, part.start), settings, domains)
    pinning.share_caches(guests, settings, domains)
    if whom:
        step("the rules of the network")
        nft_rules.apply_rules(on_bridges(guests, settings), whom, settings)
    cards.create_networks(part, settings, deadline, step)

    def serving(guest: Guest) -> Serving:
        of_guest = guest.pins.others if guest.pins else cores
        return Serving(guest.directory, part.owner, settings, domains.capabilities().qemu_ids, deadline, of_guest)

    servers = Servers(mounts, serving, caller or DirectCaller())
    servers.serve_images(guests)
    warm = _warm_starts(part, settings, domains, mounts)
    for guest in guests:  # one after the other: each counts what the others may still take of the disk
        _furnish(guest, settings, deadline, step, warm)
    servers.share(guests)
    servers.serve_disks(guests)
    if devices:
        _attach_devices(guests, domains.capabilities().qemu_ids, deadline, step)

    start = functools.partial(
        _start,
        part=part,
        settings=settings,
        domains=domains,
        deadline=deadline,
        step=step,
        here=here,
        mounts=mounts,
        cores=cores,
        warm=warm,
    )
    boot = functools.partial(_boot, start=start, settings=settings, deadline=deadline, servers=servers)
    _begin(guests, start, boot)
    step("the wait for " + ", ".join(guest.guest_file.name for guest in guests))
    wait = functools.partial(_wait, settings=settings, domains=domains)
    proven = (warm and warm.await_ready(guests, wait, boot, deadline)) or wait(guests, deadline=deadline)
    if whom and any(guest.spec.rank == 0 for guest in guests):
        # its user's login begins beside the word about the job, with which all others are bound (`join.py`)
        step("the rules of the guests' addresses")
        nft_rules.bind([on_bridge(guest, settings, proven[guest.guest_file.name]) for guest in guests], settings)
    if any(guest.pins for guest in guests):
        step("the threads of the guests")
        pinning.prove(guests, job_key(part.job_id, part.start), settings)
    step("the facts of the guests")
    facts = [facts_of(guest, proven[guest.guest_file.name], settings.side_channels) for guest in guests]
    for guest, one in zip(guests, facts, strict=True):
        files.write(guest.directory / "facts.json", json.dumps(to_dict(one)))
    wait_for_copy.request_digests(part.guests, settings)
    step("the answer")
    return tuple(sorted(facts, key=lambda one: one.rank))


def _begin(guests: t.Sequence[Guest], start: t.Callable[[Guest], None], boot: t.Callable[..., None]) -> None:
    """Start guests; those boot that were to be warm and are not."""
    warm = [guest for guest in guests if guest.template is not None]
    _all_at_once([functools.partial(start, guest) for guest in guests])
    if failed := [guest for guest in warm if guest.template is None]:
        boot(failed)


def _boot(
    guests: t.Sequence[Guest],
    start: t.Callable[[Guest], None],
    settings: NodeSettings,
    deadline: Deadline,
    servers: Servers,
) -> None:
    """Boot guests that were to be warm; what served them ended with their qemu."""
    for guest in guests:
        _put_overlay(guest, settings, deadline)
    servers.share(guests)
    servers.serve_disks(guests)
    _all_at_once([functools.partial(start, guest) for guest in guests])


def _take_devices(
    part: NodePart, settings: NodeSettings, domains: Domains, deadline: Deadline, step: Step, cores: Cores
) -> dict[int, tuple[HostDevice, ...]]:
    """Choose and lease devices of the host, before anything is made: with them a start is possible, or it is none."""
    if not host_devices.any_wanted(part.guests):
        return {}
    step("devices of the host")
    key = job_key(part.job_id, part.start)
    return host_devices.take(Taking(key, part.guests, settings, domains.list(ours=False), cores, deadline))


def _attach_devices(guests: t.Sequence[Guest], qemu_ids: tuple[int, int], deadline: Deadline, step: Step) -> None:
    """Take devices from their drivers; not in threads, which a fork does not survive."""
    step("the drivers of the host's devices")
    host_devices.attach([device for guest in guests for device in guest.devices], qemu_ids, deadline)


def _wait(guests: list[Guest], deadline: Deadline, settings: NodeSettings, domains: Domains) -> dict[str, str]:
    """The proven address of each guest, by its name."""
    macs = {guest.guest_file.mac for guest in guests}
    addresses.flush(macs, settings.bridge, deadline)
    waiting = [_awaited(guest, len(guests), settings, deadline) for guest in guests]
    until = Deadline.after(min(settings.ready_timeout_s, max(0.0, deadline.left_s() - GUESTS_RESERVE_S)))
    with addresses.Neighbours(macs, bridge=settings.bridge, leases=settings.leases_files) as candidates:
        found = wait_ready(waiting, domains, candidates, until, probe_s=settings.ssh_timeout_s)
    for guest in guests:
        name, seconds = guest.guest_file.name, guest.timings.seconds
        took = ", ".join(f"{phase} {seconds[phase]:.1f} s" for phase in ("address", "ready") if phase in seconds)
        event_log.note(2, f"guest {name} is ready at {found.get(name)} ({took})", event_log.DEBUG, "readiness")
    return found


def _warm_starts(
    part: NodePart, settings: NodeSettings, domains: Domains, mounts: shares.GuestMounts
) -> WarmStarts | None:
    """Return who starts guests warm; None: the site has none of that."""
    if not settings.warm_start:
        return None
    from .warm_starts import WarmStarts  # 10 ms that only those pay whose site has it

    return WarmStarts(part, settings, domains, mounts)


def _plan(
    part: NodePart,
    settings: NodeSettings,
    domains: Domains,
    deadline: Deadline,
    devices: t.Mapping[int, tuple[HostDevice, ...]],
) -> list[Guest]:
    """Slots, names and directories of all guests, before the first is made: each is told of all."""
    found = {spec.image: image_of(spec, settings) for spec in part.guests}
    for spec in part.guests:
        image = found[spec.image]
        if image.arch and image.arch != spec.arch:
            raise UserFault(f"arch={spec.arch}", f"image {image.name} is for {image.arch}")
    settings.mac(0)  # refuses a node without a number before anything is there
    names = {facts.name for facts in domains.list(ours=False)} | checkpoint_store.find_used_names(settings)

    def busy(slot: int) -> bool:
        return settings.guest_name(slot) in names or addresses.any_device(settings.tap_names(slot))

    key = job_key(part.job_id, part.start)
    given = slots.take(settings, key, len(part.guests), deadline, busy=busy)
    guests: list[Guest] = []
    for spec, slot in zip(part.guests, given, strict=True):
        guest_file = GuestFile(
            spec.rank,
            slot,
            settings.guest_name(slot),
            settings.mac(slot),
            NEW_UUID.read_text("ascii").strip(),
            secrets.token_hex(16),
            part.owner.uid,
            digest_of(spec, part),
            process_id.boot_id(),
            kind_of(spec.distro).name,
            spec.ram_mib,
            0 if guests else memory.region_mib(part.guests),
            checkpoint=part.checkpoint_min >= 0,
        )
        make_directory(directory := settings.start_dir(part.job_id, part.start) / guest_file.name)
        write_guest_file(directory, guest_file)
        guest = Guest(spec, guest_file, directory, Timings(), found[spec.image], found[spec.image].boot)
        guest.devices = devices.get(spec.index, ())
        guest.cards = cards.cards_of(cards.find_networks(spec.networks, settings), slot, spec.rank, key, settings)
        guests.append(guest)
    return guests


def _all_at_once(works: t.Sequence[t.Callable[[], None]]) -> None:
    """Do everything, at most `CALLS` at a time; when one fails, the others still end."""
    if len(works) == 1:
        works[0]()
        return
    with load_library("concurrent.futures").ThreadPoolExecutor(CALLS) as pool:
        for future in [pool.submit(work) for work in works]:
            future.result()


def _furnish(guest: Guest, settings: NodeSettings, deadline: Deadline, step: Step, warm: WarmStarts | None) -> None:
    """The disk, and what the guest boots from."""
    step(f"the disk of {guest.guest_file.name}")
    with guest.timings.phase("disk"):
        if guest.served is not None:
            if warm:
                warm.furnish(guest, deadline)  # which says why it cannot
            _put_overlay(guest, settings, deadline)
            return
        with wait_for_copy.base_of(guest.image, guest.spec.fs_type, settings) as base:
            guest.image = base
            if not warm or not warm.furnish(guest, deadline):
                _put_overlay(guest, settings, deadline)
            guest.boot = images.copy_boot(guest.image, guest.directory)


def _put_overlay(guest: Guest, settings: NodeSettings, deadline: Deadline) -> None:
    overlay, qemu_img = guest.directory / "disk.qcow2", settings.qemu_img
    with disk_space.counted(settings, deadline) as taken:
        if guest.served is not None:
            overlays.make_overlay_on_socket(*guest.served, overlay, deadline, taken=taken, qemu_img=qemu_img)
        else:
            overlays.make_overlay(guest.image, overlay, deadline, taken=taken, qemu_img=qemu_img)


def _start(
    guest: Guest,
    part: NodePart,
    settings: NodeSettings,
    domains: Domains,
    deadline: Deadline,
    step: Step,
    here: str,
    mounts: shares.GuestMounts,
    cores: Cores,
    warm: WarmStarts | None,
) -> None:
    """Seed and domain; the guest boots from here on, or runs on from what was saved."""
    directory, guest_file = guest.directory, guest.guest_file
    step(f"the seed of {guest_file.name}")
    with guest.timings.phase("seed"):
        content = seed_of(guest, part, settings, here, mounts)
        if part.additions.any:
            (directory / user_additions.HAS).touch(mode=0o600)
        texts = seed.render(content, settings.template_dir, settings.compiled_dir)
        if guest.template is None:
            seed.write_iso(texts, directory / "seed.iso")
        write_known_hosts(directory / "known_hosts", guest.spec.host_key.public)
    step(f"the start of {guest_file.name}")
    with guest.timings.phase("start"):
        settings.agents_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        (directory / "console.log").touch(mode=0o600)
        domain = domain_of(guest, part, settings, mounts, cores)
        huge = bool(guest.shape and guest.shape.page_kib)
        xml = render_xml(domain, site_dir=settings.template_dir, compiled=settings.compiled_dir)
        files.write(directory / "domain.xml", xml)
        step(f"the start of {guest_file.name} by libvirt")
        if warm and guest.template is not None and not warm.start(guest, xml, texts["user-data"], deadline):
            return  # it boots when what serves it is there again
        try:
            if guest.template is None:
                domains.create(xml)
            if huge and guest.pins:
                claims.note_pages_in_use(directory)
                domains.pin(guest_file.name, guest.pins.others, vcpus=False)
            limit_mib = memory.limit_mib(guest.spec, settings.host_ram_mib, huge)
            domains.repeat_if_lost(lambda: domains.limit_memory(guest_file.name, limit_mib), LIBVIRT_RETURN_S)
            side_channels.separate_threads(guest_file.name, settings.side_channels)
        except VTorqueError as error:
            # a guest that cannot start because what serves it has ended proves nothing of this node
            if guest.served and str(guest.served[0]) in str(error):
                raise SiteFault(f"the qemu-nbd of the image of {guest_file.name} has ended", str(error)) from None
            for tag, socket in guest.virtiofs:
                if virtiofsd.is_missed(str(error), socket) and (log_tail := virtiofsd.last_output(directory, tag)):
                    what, hint = f"virtiofsd of {guest_file.name} has ended", virtiofsd.hint_of(log_tail)
                    raise SiteFault(what, log_tail, hint) from None
            raise


class Servers:
    """What serves the guests their directories, images and disks: processes that become their user's.

    Args:
        mounts: of each guest.
        serving: whom a server serves, and on which terms.
        caller: starts them; not beside threads, for these processes are forks.
    """

    def __init__(self, mounts: shares.GuestMounts, serving: t.Callable[[Guest], Serving], caller: Caller) -> None:
        self._mounts = mounts
        self._serving = serving
        self._caller = caller

    def share(self, guests: t.Sequence[Guest]) -> None:
        """Start what shares this node's directories with the guests."""
        if not (over_virtiofs := [share for share in self._mounts.shares if share.kind == "virtiofs"]):
            return
        for guest in guests:
            terms = self._serving(guest)
            guest.virtiofs = tuple(
                (one.tag, self._caller.call(virtiofsd.start, one.tag, one.directory, terms)) for one in over_virtiofs
            )

    def serve_images(self, guests: t.Sequence[Guest]) -> None:
        """Start what hands an image of the user's own to each guest."""
        for guest in guests:
            if guest.spec.own_image:
                terms, spec = self._serving(guest), guest.spec
                with guest.timings.phase("disk"):
                    guest.served = self._caller.call(user_disk.serve_image, spec.image, spec.image_digest, terms)

    def serve_disks(self, guests: t.Sequence[Guest]) -> None:
        """Start what hands disks of the user's own to guests."""
        for guest in guests:
            if path := guest.spec.data_disk:
                guest.data = self._caller.call(user_disk.serve, path, self._serving(guest))


def _awaited(guest: Guest, count: int, settings: NodeSettings, deadline: Deadline) -> AwaitedGuest:
    expected: tuple[addresses.Candidate, ...] = ()
    if settings.ip_to_mac_script is not None:
        address = addresses.run_static_map(
            settings.ip_to_mac_script, settings.node_name, count, guest.guest_file.slot, deadline
        )
        expected = (addresses.Candidate(address, "static map"),)
    console = Console(guest.directory / "console.log", guest.guest_file.token)
    if kind_of(guest.spec.distro).linux:
        known_hosts = guest.directory / "known_hosts"
        ask: t.Callable[[str, float], Probe] = functools.partial(SshProbe, settings.ssh, known_hosts)
    else:
        ask = functools.partial(OsvProbe, guest.guest_file.token)
    # an image of OSv may be without the launcher, which would say so
    announces = kind_of(guest.spec.distro).linux
    return AwaitedGuest(guest.guest_file.name, guest.guest_file.mac, ask, console, guest.timings, expected, announces)
