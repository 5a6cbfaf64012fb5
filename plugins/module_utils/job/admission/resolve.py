# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's word on a request: what it gets, what it cannot have, and what a node must give for it."""

from __future__ import annotations

import typing as t

from ...eligibility import guest_saving
from ...frozen import frozen
from ...guest_kinds import OSV, OSV_BASE, kind_of
from ..config.batch_systems import facts_of
from ..config.consistency import (
    DATA,
    HOOK_SCRIPTS,
    SKVM,
    format_for_request,
    has_private_network,
    is_site_mount,
    out_of_bounds,
)
from ..config.parameters import DEFAULT_OF, SITE_FILES, Policy
from ..request.keys import DISK, FORMER_HYPERVISOR, IMAGE, KEYS, PINNING
from ..request.request import Request, RequestErrors, is_path
from ..request.value_types import KeyFault, Value, encode_value, format_value, nearest
from . import numa, request_devices

SITE_DEFAULT = "site default"


@frozen
class ImageFacts:
    """An image of the pool, as far as a request can meet it.

    Attributes:
        name: `debian12@3` for a revision, the file's name (`tiny.qcow2`) for an image without a record.
        distro: its family, or "" when nothing is recorded.
        arch: its architecture, or "" when nothing is recorded.
        boot: how it boots (`images.BOOT_MODES`), or "" when nothing is recorded.
        rdma: whether its guests have verbs (`vrdma=true`): `yes` or `no`, or "" when nothing is recorded.
    """

    name: str
    distro: str = ""
    arch: str = ""
    boot: str = ""
    rdma: str = ""


@frozen
class Offers:
    """What there is to choose from; the caller has looked.

    Attributes:
        images: the pool's images; None: nobody could look, so the name is left to who can.
        archs: what the nodes' libvirt offers.
    """

    images: tuple[ImageFacts, ...] | None = None
    archs: tuple[str, ...] = ("x86_64",)


@frozen
class ResolvedRequest:
    """A request with everything decided: a value, or None, and an origin for every key.

    Attributes:
        values: by key; `img` is the image's name in the pool with its revision.
        origins: by key: what the request says, or "site default", or "the image's record".
        shell: the user's own `-S`, or "".
    """

    values: t.Mapping[str, Value | None]
    origins: t.Mapping[str, str]
    shell: str

    def text(self, key: str) -> str:
        """The value of a key that holds a word, a name or a path; "" when there is none."""
        value = self.values[key]
        return "" if value is None else encode_value(value)

    def figure(self, key: str) -> int:
        """The value of a key that holds a number (a size: MiB); 0 when there is none."""
        value = self.values[key]
        return value if isinstance(value, int) else 0


def resolve(request: Request, policy: Policy, offers: Offers) -> ResolvedRequest:
    """Decide every key of a request: what was asked for, within the site's bounds, or the site's default.

    Args:
        request: what was asked for, script and command line merged.
        policy: the site's configuration.
        offers: the images and architectures there are.

    Returns:
        A value, or None, and an origin for every key.

    Raises:
        RequestErrors: something cannot be had; all of it is named.
    """
    values: dict[str, Value | None] = {}
    origins: dict[str, str] = {}
    choices = numa.Choices(values, origins, request.values, policy)
    faults: list[KeyFault] = []
    for key in KEYS:
        asked = key in request.values
        value = request.values[key] if asked else _default(key, policy)
        values[key], origins[key] = value, request.origins.get(key, "") if asked else SITE_DEFAULT
        message = _objection(key, value, policy)
        if message and value is not None:
            faults.append(KeyFault(key, format_for_request(key, value), message, origins[key]))
    faults.extend(numa.resolve_io_cores(choices))
    faults.extend(_contradiction(values, origins))
    faults.extend(numa.find_faults(values, origins, SITE_DEFAULT))
    if values["pci"] is not None and not any(fault.key == "pci" for fault in faults):
        faults.extend(request_devices.find_faults(values, origins["pci"], policy))
    if not any(fault.key == "img" for fault in faults):
        faults.extend(_choose_image(values, origins, offers))
    faults.extend(request_devices.resolve_region(choices))
    image = next((one for one in offers.images or () if one.name == values["img"]), None)
    faults.extend(request_devices.resolve_rdma(choices, image.rdma if image else ""))
    faults.extend(_resolve_spare(values, origins, policy))
    faults.extend(request_devices.resolve_networks(choices))
    if values["arch"] not in offers.archs:
        message = f"the nodes offer {', '.join(offers.archs) or 'none'}"
        faults.append(KeyFault("arch", format_value(values["arch"]), message, origins["arch"]))
    if wants_checkpoints(values, origins):
        key = "checkpoint_every" if values["checkpoint_every"] is not None else "checkpoint"
        reasons = guest_saving.objections_to_checkpoint(parts_in_the_way(values, origins, policy, offers))
        if reasons:
            faults.append(KeyFault(key, format_value(values[key]), "; ".join(reasons), origins[key]))
    if faults:
        first = {fault.key: fault for fault in reversed(faults)}  # one word on each key is enough
        raise RequestErrors([fault for fault in faults if first[fault.key] is fault], request)
    return ResolvedRequest(values, origins, request.shell)


def why_not_saved(request: Request, policy: Policy, *, interactive: bool) -> str:
    """Return why the guests of a job that was taken are not saved at a request, in a clause; "": they are.

    How its image boots was asked when the job came, and the pool need not be here any more.

    Args:
        request: of the job.
        policy: the site's configuration.
        interactive: whether the job has a terminal.
    """
    values = {key: request.values[key] if key in request.values else _default(key, policy) for key in KEYS}
    origins = {key: request.origins.get(key, "") if key in request.values else SITE_DEFAULT for key in KEYS}
    if wants_checkpoints(values, origins):
        return ""
    found = set(parts_in_the_way(values, origins, policy, Offers()))
    found |= {guest_saving.TERMINAL} if interactive else set()
    reasons = guest_saving.objections_to_checkpoint(found)
    return f"cannot be saved: {'; '.join(reasons)}" if reasons else "was submitted without checkpoint=on"


def parts_in_the_way(
    values: t.Mapping[str, Value | None], origins: t.Mapping[str, str], policy: Policy, offers: Offers
) -> frozenset[str]:
    """Return what guests of a request will have that they cannot be saved with (`guest_saving.REASONS_OF_JOBS`).

    Args:
        values: of all keys.
        origins: of all keys.
        policy: the site's configuration.
        offers: say how the image boots.
    """
    mounts = {line.split()[2] for line in policy.mounts} | {policy.home_via}
    linux = kind_of(str(values["distro"])) is not OSV
    cells, pages = numa.for_wire(values, origins, SITE_DEFAULT)
    there = {
        guest_saving.VIRTIOFS: "virtiofs" in mounts and linux,
        guest_saving.PLAN9: "9p" in mounts and linux,
        guest_saving.PCI: bool(values["pci"]) or (values["vrdma"] is True and policy.vrdma_kind == "sriov"),
        guest_saving.VHOST_USER: values["vrdma"] is True and policy.vrdma_kind == "vhostuser",
        guest_saving.SHARED_MEMORY: values["unclot"] is True,
        guest_saving.HUGE_PAGES: pages != "none",
        guest_saving.CELLS: cells != "off",
        guest_saving.NETWORKS: values["network"] is not None,
        guest_saving.USER_DISK: bool(values[DISK]) or is_path(values[IMAGE]),
        guest_saving.UEFI: any(one.boot == "uefi" for one in offers.images or () if one.name == values[IMAGE]),
        guest_saving.OSV: not linux,
        guest_saving.NO_STORE: policy.checkpoint_dir is None,
        guest_saving.SESSION: policy.suspend_guests == "session",
        guest_saving.BATCH: not facts_of(policy.batch_system).checkpoints,
        guest_saving.STAYS: not facts_of(policy.batch_system).moves,
    }
    return frozenset(name for name, has in there.items() if has)


def survival_of(
    resolved: ResolvedRequest, policy: Policy, offers: Offers, *, interactive: bool, bare: bool
) -> guest_saving.Survival:
    """Return what the guests of a request will live through.

    Args:
        resolved: the request.
        policy: the site's configuration.
        offers: say how the image boots.
        interactive: whether the job has a terminal.
        bare: whether some of its hosts run no guests.
    """
    found = set(parts_in_the_way(resolved.values, resolved.origins, policy, offers))
    values, origins = resolved.values, resolved.origins
    there = {
        guest_saving.TERMINAL: interactive,
        guest_saving.BARE_HOSTS: bare,
        guest_saving.NO_SPARES: not policy.spare_nodes,
        guest_saving.CHECKPOINTS: wants_checkpoints(values, origins),
        guest_saving.PINNED: is_path(values[PINNING])
        or (values[PINNING] is True and origins[PINNING] != SITE_DEFAULT)
        or values["iocm"] is True,
    }
    found |= {name for name, has in there.items() if has}
    return guest_saving.judge_survival(policy.suspend_guests, found)


def wants_checkpoints(values: t.Mapping[str, Value | None], origins: t.Mapping[str, str]) -> bool:
    """Return whether a request wants its guests saved, at a request or by themselves; `off` switches off both.

    Args:
        values: of all keys.
        origins: of all keys.
    """
    if values["checkpoint"] == "off" and origins["checkpoint"] != SITE_DEFAULT:
        return False
    return values["checkpoint"] == "on" or values["checkpoint_every"] is not None


def checkpoint_minutes(resolved: ResolvedRequest) -> int:
    """Return how often guests of a request are saved, in minutes; 0: at a request; -1: never."""
    return resolved.figure("checkpoint_every") if wants_checkpoints(resolved.values, resolved.origins) else -1


def _default(key: str, policy: Policy) -> Value | None:
    """What a request gets that does not say it; a file is the user's to read, so vsub has put it into their request."""
    value = t.cast("Value | None", getattr(policy, DEFAULT_OF[key]))
    return None if key in SITE_FILES or (key == PINNING and is_path(value)) else value


def _objection(key: str, value: Value | None, policy: Policy) -> str:
    """Why a value cannot be had, whatever the others are, or ""."""
    if value is None:
        return ""
    if key in HOOK_SCRIPTS and (why := facts_of(policy.batch_system).no_hook_scripts):
        return why
    if key == IMAGE and is_path(value) and not policy.allow_user_images:
        return "this site does not allow images of one's own (allow_user_images); vmgr image list shows its images"
    if key == "disk" and is_site_mount(DATA, policy):
        return f"this site mounts something of its own on {DATA}"
    if key == "hypervisor" and value == FORMER_HYPERVISOR:
        return SKVM
    if key == "warm" and value is True and not policy.warm_start:
        return "this site has no warm starts (warm_start)"
    if key == "hypervisor" and value == "qemu" and not policy.allow_emulation:
        return "this site does not allow software emulation"
    return out_of_bounds(key, value, policy)


def _contradiction(values: t.Mapping[str, Value | None], origins: t.Mapping[str, str]) -> t.Iterator[KeyFault]:
    low, high = values["iocm_min_cores"], values["iocm_max_cores"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        message = f"is more than iocm_max_cores ({high}, {origins['iocm_max_cores']})"
        yield KeyFault("iocm_min_cores", str(low), message, origins["iocm_min_cores"])


def _resolve_spare(values: dict[str, Value | None], origins: dict[str, str], policy: Policy) -> t.Iterator[KeyFault]:
    """Yield why the job cannot have spare nodes; a site's default gives way without a word."""
    private = has_private_network(t.cast("tuple[str, ...]", values["network"] or ()), policy)
    why = {
        f"jobs of {policy.batch_system} have no spare nodes yet": not facts_of(policy.batch_system).spares,
        "is for jobs that have guests on all of their nodes: leave nodes out": values["nodes"] is not None,
        "a job in OSv has one node, and its shell is there": kind_of(str(values["distro"])) is OSV,
        "the job's own network knows its nodes from the beginning: leave one of both out": private,
    }
    found = next((reason for reason, there in why.items() if there), "") if values["spare"] else ""
    if found and origins["spare"] != SITE_DEFAULT:
        yield KeyFault("spare", format_value(values["spare"]), found, origins["spare"])
    elif found:
        values["spare"] = None


_FAMILY = {"ubuntu": "debian", "centos": "redhat", "rocky": "redhat", "alma": "redhat"}
_FROM_RECORD = "the image's record"


def _choose_image(values: dict[str, Value | None], origins: dict[str, str], offers: Offers) -> t.Iterator[KeyFault]:
    """Put the image's full name and its distribution into `values`, and yield what speaks against it."""
    asked = values["img"]
    if asked is None:
        yield KeyFault("img", "", "no image: this site has no default, so -vm img=NAME must say it (vmgr image list)")
        return
    if is_path(asked):
        yield from _in_place("an own image", "is read where it lies", values, origins)
    elif offers.images is not None:
        image = _find(str(asked), offers.images)
        if image is None:
            names = {candidate.name.partition("@")[0] for candidate in offers.images}
            message = f"no such image in the pool{nearest(str(asked), sorted(names))} (vmgr image list)"
            yield KeyFault("img", format_value(asked), message, origins["img"])
            return
        if image.distro == OSV_BASE:
            message = "is a base, of which images are made (vmgr image compose); no job runs in it"
            yield KeyFault("img", format_value(asked), message, origins["img"])
            return
        if image.name != asked:
            origins["img"] += f" ({asked})"
        values["img"] = image.name
        yield from _agree(image, values, origins)
        if "@" not in image.name:  # a node copies only what a record says the digest of
            why = "has no record, by which a copy could be checked"
            yield from _in_place(f"the image {image.name}", why, values, origins)
    if values["distro"] is None:
        message = f"the image {values['img']} has no record that says it: give one of {KEYS['distro'].kind.allowed}"
        yield KeyFault("distro", "", message)


def _find(asked: str, images: t.Sequence[ImageFacts]) -> ImageFacts | None:
    """The image of that name; of several revisions the newest, of several files the one that is named exactly."""

    def stem(name: str) -> str:
        return name.removesuffix(".qcow2").removesuffix(".img")

    exact = [image for image in images if image.name == asked]
    revisions = [image for image in images if image.name.partition("@")[0] == asked and "@" in image.name]
    revisions.sort(key=lambda image: int(image.name.partition("@")[2]))
    files = [image for image in images if stem(image.name) == stem(asked)]
    return next(iter([*exact, *revisions[::-1], *files]), None)


def _agree(image: ImageFacts, values: dict[str, Value | None], origins: dict[str, str]) -> t.Iterator[KeyFault]:
    """Yield what the image's record says against the request; a site default gives way silently."""
    for key, fact in (("distro", image.distro), ("arch", image.arch)):
        if not fact:
            continue
        value = values[key]
        agrees = value == fact or (key == "distro" and value == _FAMILY.get(fact))
        if value is not None and not agrees and origins[key] != SITE_DEFAULT:
            yield KeyFault(key, format_value(value), f"the image {image.name} is {fact}", origins[key])
        elif value != fact:
            values[key], origins[key] = fact, _FROM_RECORD


_NO_COPY = "nodes make no copy of it"


def _in_place(image: str, why: str, values: dict[str, Value | None], origins: dict[str, str]) -> t.Iterator[KeyFault]:
    """An image of which nodes make no copies; a site default gives way without a word."""
    fs_type = values["fs_type"]
    if fs_type == "sharedfs":
        return
    if origins["fs_type"] == SITE_DEFAULT:
        values["fs_type"], origins["fs_type"] = "sharedfs", _NO_COPY
    else:
        yield KeyFault("fs_type", format_value(fs_type), f"{image} {why}: fs_type=sharedfs", origins["fs_type"])
