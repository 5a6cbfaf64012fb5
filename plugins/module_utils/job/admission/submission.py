# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what the user typed and wrote into the script to what the batch system gets, or all that speaks against it."""

from __future__ import annotations

import dataclasses
import os
import types
import typing as t

from ...eligibility import guest_saving, warm_reasons
from ...eligibility.warm_reasons import describe_warm_start
from ...errors import UserFault
from ...frozen import frozen
from ..batch.registry import Terms, open_terms
from ..config.parameters import DEFAULT_OF, SITE_FILES, Policy
from ..request import attached_file
from ..request.command_call import CommandCall
from ..request.demand import Demand, NodeSize
from ..request.keys import ADDITIONS, DISK, IMAGE, KEYS, PINNING, SCRIPTS
from ..request.request import Request, RequestErrors, files_of, is_path, parse
from ..request.value_types import BadValue, KeyFault, format_value
from . import metadata, mixed, numa, osv, request_devices, vcpu_map
from .resolve import SITE_DEFAULT, Offers, ResolvedRequest, parts_in_the_way, resolve, survival_of
from .resources import count_of, demand, too_big
from .start_directory import GuestPlaces

if t.TYPE_CHECKING:
    from ..batch.contract import FrontJob


@frozen
class Site:
    """What there is at the site; the caller has looked, or knows how to.

    Attributes:
        offers: images and architectures to choose from.
        broken: images that are there and cannot be used, by name, with the reason.
        sizes: asks the batch server for the sizes of the nodes of a queue (`FrontJob.queue`).
        disk: looks at a disk of the user's; raises `UserFault`.
        image: looks at an image of the user's, and says by a digest which it is (`user_image.py`); raises `UserFault`.
        look: reads a file of the user's, and says whether it is to be a script: its absolute path and its content, or
            `BadValue`.
    """

    offers: Offers
    broken: t.Mapping[str, str]
    sizes: t.Callable[[str], t.Sequence[NodeSize]]
    disk: t.Callable[[str], None] = lambda _path: None
    image: t.Callable[[str], str] = lambda _path: "0" * 64
    look: t.Callable[[str, bool], tuple[str, bytes]] = lambda word, runs: attached_file.inspect_file(
        word,
        os.getcwd(),  # noqa: PTH109 - as the user's shell names it
        runs=runs,
    )


@frozen
class Submission:
    """What the batch system's command gets.

    Attributes:
        command_call: its call.
        resolved: the request with everything decided, for people; root decides afresh when the job starts.
        notices: what was raised, and why, one line each.
        hosts: how many hosts the job asks for; None: the batch system decides.
        added: what the user adds to each guest, in a few words; "": nothing.
        pinned: which cores the threads of guests get, in words; "": vCPUs share the job's.
        need: of the job's guests, on each node.
        sizes: of the site's nodes, as far as the batch server names them.
        pinning: the user's map of vCPUs; None: they have none.
        survival: what its guests live through.
        warm: how its guests will start, in words; "": the site has no warm starts.
    """

    command_call: CommandCall
    resolved: ResolvedRequest
    notices: tuple[str, ...]
    need: Demand
    hosts: int | None = 1
    added: str = ""
    pinned: str = ""
    sizes: tuple[NodeSize, ...] = ()
    pinning: vcpu_map.VcpuMap | None = None
    survival: guest_saving.Survival = guest_saving.Survival()
    warm: str = ""

    @property
    def vm_hosts(self) -> int | None:
        """How many of them have guests."""
        return None if self.hosts is None else mixed.vm_hosts(self.resolved, self.hosts)


def prepare(
    asked: FrontJob,
    policy: Policy,
    site: Site,
    home: str,
    log: t.Mapping[str, bool] = types.MappingProxyType({}),
) -> Submission:
    """Decide what the batch system's command gets.

    Args:
        asked: the call and the script, as the batch system's front read them.
        policy: the site's configuration.
        site: what there is.
        home: the user's home directory.
        log: what the user wishes of the job's log (`Request.log`).

    Returns:
        The command's call, and what was raised.

    Raises:
        RequestErrors: with everything that speaks against the job.
        UserFault: the request is longer than what takes it along.
    """
    request, faults = _request(asked)
    request, added, pinning, wrong = complete(request, policy, site, home)
    faults += wrong
    faults += asked.objections(GuestPlaces(policy, home, devices="pci" in request.values))
    known, terms = tuple(site.sizes(asked.queue)), open_terms(policy.batch_system)
    faults += asked.object_to_sizes(known)
    hosts = asked.hosts
    spoilt = {fault.key for fault in faults}
    try:
        resolved = resolve(request, policy, site.offers)
        need = demand(resolved, policy, pinning)
        faults += _misfits(pinning, resolved)
        faults += [fault for fault in too_big(need, known, terms) if fault.key not in spoilt]
        if hosts is not None and mixed.KEY not in spoilt and (why := mixed.objection(resolved, hosts, terms)):
            faults.append(KeyFault(mixed.KEY, resolved.text(mixed.KEY), why, resolved.origins[mixed.KEY]))
        faults += [fault for fault in _refused_in_osv(asked, resolved, terms) if fault.key not in spoilt]
    except RequestErrors as errors:
        faults += [_explained(fault, site) for fault in errors.faults if fault.key not in spoilt]
    if faults:
        raise RequestErrors(faults, request)
    if need.spare:
        request = mixed.with_spare_count(request, need.spare)
    command_call, notices = asked.submission(request.with_log(log), need, policy)
    region = resolved.figure(request_devices.REGION_SIZE)
    if raised := request_devices.notice_of_region(request.values.get(request_devices.REGION_SIZE), region):
        notices = (*notices, raised)
    described = _describe_pinning(pinning, resolved, policy)
    bare = hosts is not None and mixed.vm_hosts(resolved, hosts) < hosts
    survival = survival_of(resolved, policy, site.offers, interactive=asked.interactive, bare=bare)
    warm = describe_warm_start(_cold_because(resolved, policy, site.offers)) if policy.warm_start else ""
    return Submission(command_call, resolved, notices, need, hosts, added, described, known, pinning, survival, warm)


def _cold_because(resolved: ResolvedRequest, policy: Policy, offers: Offers) -> frozenset[str]:
    """Return what keeps its guests from starting warm (`warm_reasons.REASONS`), as far as a front end knows it."""
    in_the_way = parts_in_the_way(resolved.values, resolved.origins, policy, offers)
    own_cores = numa.is_strict(resolved.values[PINNING], asked=resolved.origins[PINNING] != SITE_DEFAULT)
    kvm = resolved.values["hypervisor"] == "kvm"
    there = {
        warm_reasons.ASKED: resolved.values["warm"] is not True,
        warm_reasons.KIND: osv.is_osv(resolved),
        warm_reasons.CORES: guest_saving.CELLS in in_the_way
        or guest_saving.HUGE_PAGES in in_the_way
        or (own_cores and kvm),
        warm_reasons.QUEUES: resolved.values["iocm"] is True and kvm,
        warm_reasons.RDMA: resolved.values["vrdma"] is True,
        warm_reasons.OWN_IMAGE: is_path(resolved.values["img"]),
    }
    return in_the_way & warm_reasons.REASONS.keys() | {name for name, has in there.items() if has}


def complete(
    request: Request, policy: Policy, site: Site, home: str
) -> tuple[Request, str, vcpu_map.VcpuMap | None, list[KeyFault]]:
    """Add to a request what the site has for who does not say, and what the user's own files hold now.

    Args:
        request: as it was typed.
        policy: the site's configuration.
        site: looks at the user's files.
        home: the user's home directory.

    Returns:
        The request; what it adds to guests, in words; its map of vCPUs; what is wrong with it.
    """
    request = _with_files_of_the_site(request, policy, home)
    request, contents, unread = _with_digests(request, site)
    added, wrong = _additions(request, contents, policy, home)
    pinning, bad_map = _pinning(request, contents)
    request, bad_disk = _with_disk(request, site)
    request, bad_image = _with_image(request, policy, site)
    return request, added, pinning, [*unread, *wrong, *bad_map, *bad_disk, *bad_image, *_too_long(request)]


def _explained(fault: KeyFault, site: Site) -> KeyFault:
    """An image that is there and broken is not said to be missing."""
    names = (fault.value, f"{fault.value}.qcow2", f"{fault.value}.img") if fault.key == "img" else ()
    return next((dataclasses.replace(fault, message=site.broken[n]) for n in names if n in site.broken), fault)


def _request(asked: FrontJob) -> tuple[Request, list[KeyFault]]:
    """What the user asks for, as far as it can be read, and what is wrong with the rest."""
    merged = Request()
    faults: list[KeyFault] = []
    for texts in asked.layers:
        try:
            part = parse(texts)
        except RequestErrors as errors:
            part = errors.good
            faults += errors.faults
        merged = part.merged_over(merged)
    if (shell := asked.shell) is not None:
        try:
            merged = merged.with_shell(shell[0])
        except UserFault as fault:
            faults.append(KeyFault("-S", format_value(shell[0]), f"{fault.why}; {fault.hint}", shell[1]))
    return merged, faults


def _with_digests(request: Request, site: Site) -> tuple[Request, dict[str, bytes], list[KeyFault]]:
    """The request with the files that go to the guest as they are now, what they hold, and what is wrong with them."""
    values, contents = dict(request.values), {}
    faults = []
    for key in filter(files_of(values).__contains__, KEYS):
        try:
            values[key], contents[key] = site.look(str(values[key]), key in SCRIPTS)
        except BadValue as error:
            faults.append(KeyFault(key, format_value(values[key]), str(error), request.origins[key]))
    digests = {key: attached_file.digest(content) for key, content in contents.items()}
    return dataclasses.replace(request, values=values, digests=digests), contents, faults


def _additions(
    request: Request, contents: t.Mapping[str, bytes], policy: Policy, home: str
) -> tuple[str, list[KeyFault]]:
    """What the user adds to the guests, in words, and what is wrong with it, a line of the file each."""
    content = contents.get(ADDITIONS)
    if content is None:
        return "", []
    path = str(request.values[ADDITIONS])
    try:
        return metadata.describe(metadata.read(content, path, policy, home)), []
    except metadata.AdditionsErrors as errors:
        return "", _in_file(path, errors.faults)


def _in_file(path: str, faults: t.Sequence[attached_file.FileFault]) -> list[KeyFault]:
    """What is wrong in a file of the user's, each with its line."""
    name = format_value(os.path.basename(path))  # noqa: PTH119
    return [KeyFault(f"{name}:{fault.line}" if fault.line else name, "", fault.message) for fault in faults]


def _pinning(request: Request, contents: t.Mapping[str, bytes]) -> tuple[vcpu_map.VcpuMap | None, list[KeyFault]]:
    """The user's map of vCPUs, and what is wrong with it."""
    if PINNING not in contents:
        return None, []
    path = str(request.values[PINNING])
    try:
        return vcpu_map.read(contents[PINNING], path), []
    except vcpu_map.MapErrors as errors:
        return None, _in_file(path, errors.faults)


def _describe_pinning(pinning: vcpu_map.VcpuMap | None, resolved: ResolvedRequest, policy: Policy) -> str:
    """Which cores the threads of guests get, in words; "": vCPUs share the job's."""
    if pinning:
        return vcpu_map.describe(pinning)
    if resolved.values[PINNING] is not True:
        return ""
    each = resolved.figure("vms_per_node") * resolved.figure("vcpus")
    others = f"{policy.host_os_core_count} for all other threads" if policy.host_os_core_count else "what is left"
    if_enough = "where the job has enough: " if resolved.origins[PINNING] == SITE_DEFAULT else ""
    return f"{if_enough}{count_of(each, 'core')} for vCPUs, one each; {others}"


def _misfits(pinning: vcpu_map.VcpuMap | None, resolved: ResolvedRequest) -> list[KeyFault]:
    """What of a map is not about the guests that there will be."""
    path = resolved.text(PINNING)
    try:
        if pinning:
            vcpu_map.check(pinning, path, resolved.figure("vms_per_node"), resolved.figure("vcpus"))
    except vcpu_map.MapErrors as errors:
        return _in_file(path, errors.faults)
    return []


def _with_disk(request: Request, site: Site) -> tuple[Request, list[KeyFault]]:
    """The request with the full path of the user's own disk, and what is wrong with that."""
    if DISK not in request.values:
        return request, []
    word = str(request.values[DISK])
    path = os.path.abspath(word)  # noqa: PTH100 - text in, text out
    request = dataclasses.replace(request, values={**request.values, DISK: path})
    try:
        site.disk(path)
    except UserFault as fault:
        return request, [_of_file(DISK, word, fault, request)]
    return request, []


def _with_image(request: Request, policy: Policy, site: Site) -> tuple[Request, list[KeyFault]]:
    """The request with what the user's own image is now, and what is wrong with that."""
    path = request.values.get(IMAGE)
    if not is_path(path) or not policy.allow_user_images:  # what it is does not matter then: `resolve` refuses it
        return request, []
    try:
        return dataclasses.replace(request, digests={**request.digests, IMAGE: site.image(str(path))}), []
    except UserFault as fault:
        return request, [_of_file(IMAGE, str(path), fault, request)]


def _of_file(key: str, word: str, fault: UserFault, request: Request) -> KeyFault:
    why = f"{fault.why}; {fault.hint}" if fault.hint else fault.why
    return KeyFault(key, format_value(word), why, request.origins[key])


def _with_files_of_the_site(request: Request, policy: Policy, home: str) -> Request:
    """The request with the files that the site has for who names none; those of a home only where they are."""
    values, origins = dict(request.values), dict(request.origins)
    files = [*SITE_FILES, *(key for key in (IMAGE, PINNING) if is_path(getattr(policy, DEFAULT_OF[key])))]
    for key in files:
        word = getattr(policy, DEFAULT_OF[key])
        if key in values or word is None:
            continue
        path = f"{home}/{word[2:]}" if word.startswith("~/") else word
        if path == word or os.path.lexists(path):
            values[key], origins[key] = path, SITE_DEFAULT
    return dataclasses.replace(request, values=values, origins=origins)


def _too_long(request: Request) -> t.Iterator[KeyFault]:
    try:
        request.encode()
    except UserFault as fault:
        yield KeyFault("-vm", "", f"{fault.what}: {fault.why}; {fault.hint}")


def _refused_in_osv(asked: FrontJob, resolved: ResolvedRequest, terms: Terms) -> t.Iterator[KeyFault]:
    """What a job cannot have whose guest is one process, where it is to be one."""
    if not osv.is_osv(resolved):
        return
    yield from osv.objections(resolved, asked.hosts or 1, terms)
    yield from osv.refused_options(resolved, terms, interactive=asked.interactive, directory=asked.directory)
    if not asked.interactive:
        yield from osv.script_objections(*asked.source)
