# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What no single parameter shows: parameters that do not fit each other, and values beyond the site's bounds."""

from __future__ import annotations

import pathlib
import typing as t

from ...effects import leaves_nothing
from ...site_lists import guest_networks, health_sources
from ...site_lists.mounts import read_line
from ...state import event_log
from ...text import format_mib
from ..request.keys import FORMER_HYPERVISOR
from ..request.request import is_path
from ..request.value_types import Value, encode_value, format_value
from .batch_systems import facts_of
from .parameters import BOUNDS_OF, DEFAULT_OF, Policy

GATES = {f"{component}_enabled_default": f"{component}_enabled" for component in ("vrdma", "iocm", "unclot")}
"""What a silent user gets of a component, and whether the site has it at all."""
HEALTH_SOURCES = 32
"""Lines of `health_sources`, which each sweep reads."""
DATA = "/data"
"""Where a guest has its user's own disk."""
SKVM = "was the original's alone: write kvm, with iocm=true for I/O cores and vrdma=true for RDMA"
"""Why nobody gets the hypervisor of that name (sKVM), and what has taken its place."""

HOOK_SCRIPTS = ("vm_prologue", "vm_epilogue")
REGION_MIB = 64
"""Of the region that guests share, where neither the user nor the site says it."""


def find_contradictions(policy: Policy) -> t.Iterator[tuple[str, str]]:
    """What does not fit together.

    Args:
        policy: each value of which is good by itself.

    Yields:
        A parameter's name, and what is wrong with its value beside the others.
    """
    if policy.kill_user_processes_after_job and not policy.pbs_exclusive_node_alloc:
        why = "needs pbs_exclusive_node_alloc: a shared node has other users; set both, or both to false"
        yield "kill_user_processes_after_job", why
    if policy.custom_ip_mapping and policy.ip_to_mac_script is None:
        yield "custom_ip_mapping", "needs ip_to_mac_script"
    if policy.hypervisor_default == "qemu" and not policy.allow_emulation:
        yield "hypervisor_default", "needs allow_emulation"
    if is_path(policy.img_default) and not policy.allow_user_images:
        yield "img_default", "a path needs allow_user_images; an image of the pool is called by its name"
    if policy.disk_default is not None and is_site_mount(DATA, policy):
        yield "disk_default", f"mounts has something of the site's own on {DATA}"
    yield from _log(policy)
    yield from _side_channels(policy)
    yield from _health(policy)
    yield from _own_images(policy)
    if policy.timeout > policy.prologue_timeout:
        yield "timeout", f"is more than prologue_timeout ({policy.prologue_timeout})"
    spent = policy.timeout + policy.security_updates_timeout
    if policy.security_updates and spent > policy.prologue_timeout:
        why = f"and timeout together are {spent} s, more than prologue_timeout ({policy.prologue_timeout})"
        yield "security_updates_timeout", why
    yield from _rdma(policy)
    yield from _networks(policy)
    yield from _unavailable(policy)
    yield from _bounds(policy)
    low, high = policy.iocm_min_cores_default, policy.iocm_max_cores_default
    if low > high:
        yield "iocm_min_cores_default", f"is more than iocm_max_cores_default ({high})"


def _log(policy: Policy) -> t.Iterator[tuple[str, str]]:
    components = [line.split()[0] for line in policy.log_levels]
    if twice := sorted({name for name in components if components.count(name) > 1}):
        yield "log_levels", f"{', '.join(twice)} has two levels"
    if policy.log_format == event_log.JSON and policy.log_file is None:
        yield "log_format", "needs log_file: a job's own log is text, and vmgr job log --json reads it for programs"


def _side_channels(policy: Policy) -> t.Iterator[tuple[str, str]]:
    if policy.side_channels in ("exclusive", "strict") and not policy.pbs_exclusive_node_alloc:
        yield "side_channels", f"{policy.side_channels} needs pbs_exclusive_node_alloc: a job has its nodes to itself"
    if policy.side_channels != "off" and policy.suspend_guests == "session":
        why = "guests of a suspended job would run on beside those of the next"
        yield "side_channels", f"{policy.side_channels} does not go with suspend_guests: session: {why}"


def _health(policy: Policy) -> t.Iterator[tuple[str, str]]:
    facts = facts_of(policy.batch_system)
    sources = [health_sources.read_line(line) for line in policy.health_sources]
    if not facts.node_messages and any(one.kind == health_sources.MESSAGE for one in sources):
        yield "health_sources", f"{policy.batch_system} hands on no message of its check: name the check as a program"
    if len(sources) > HEALTH_SOURCES:
        yield "health_sources", f"has {len(sources)} lines, more than {HEALTH_SOURCES}"
    if policy.on_degrading == "checkpoint":
        if not facts.checkpoints:
            yield "on_degrading", f"jobs of {policy.batch_system} have no checkpoints"
        elif policy.checkpoint_dir is None:
            yield "on_degrading", "checkpoint needs checkpoint_dir"
    if policy.on_degrading == "evacuate":
        if not facts.moves:
            yield "on_degrading", f"guests of {policy.batch_system} cannot move"
        elif not policy.spare_nodes:
            yield "on_degrading", "evacuate needs spare_nodes"


def region_mib(policy: Policy, asked: int | None = None) -> int:
    """Return the size of the region that guests share, in MiB: the device exists in powers of two alone (ivshmem).

    Args:
        policy: holds the default, and its bounds.
        asked: by the user, in MiB; None: they leave it to the site.
    """
    wanted = asked or policy.unclot_shmem_default
    size = 1 << ((wanted or max(REGION_MIB, policy.unclot_shmem_min or 0)) - 1).bit_length()
    greatest = policy.unclot_shmem_max
    return 1 << greatest.bit_length() - 1 if greatest and not wanted and size > greatest else size


@leaves_nothing
def log_settings_of(policy: Policy) -> event_log.LogSettings:
    """Return what hosts log, and where.

    Args:
        policy: the site's.
    """
    file, program = (pathlib.Path(name) if name else None for name in (policy.log_file, policy.log_program))
    return event_log.LogSettings(policy.log_levels, file, policy.log_format, program, policy.log_program_level)


def job_log_level(policy: Policy, wishes: t.Mapping[str, bool]) -> str:
    """Return the level of a job's log, one of `event_log.JOB_LEVELS`.

    Args:
        policy: holds the defaults.
        wishes: of the job's owner (`Request.log`), which go before them.
    """
    if wishes.get("trace", policy.trace_default):
        return event_log.TRACE
    return event_log.DEBUG if wishes.get("debug", policy.debug_default) else event_log.INFO


def is_site_mount(target: str, policy: Policy) -> bool:
    """Return whether this site mounts something of its own there, in every guest."""
    return any(line.split()[1] == target for line in policy.mounts)


def _own_images(policy: Policy) -> t.Iterator[tuple[str, str]]:
    """Who makes the image of a guest is root in it, from its first moment on."""
    if not policy.allow_user_images:
        return
    if not policy.confine_guests:
        yield "allow_user_images", "needs confine_guests: who makes an image is root in its guest"
    homes = ("vm_nfs_home",) if policy.home_via == "nfs" else ()
    believed = [name for name in (*homes, "vm_nfs_ws", "vm_nfs_opt") if getattr(policy, name)]
    if any(read_line(line).kind == "nfs" for line in policy.mounts):
        believed.append("mounts")
    if believed:
        why = "who makes an image is root in its guest, whom an NFS server believes to be any user"
        yield "allow_user_images", f"does not go with {', '.join(believed)}: {why}; share them by virtiofs"


def _rdma(policy: Policy) -> t.Iterator[tuple[str, str]]:
    if policy.vrdma_kind == "vhostuser":
        yield from _vhost_user(policy)
    if policy.vrdma_kind == "sriov":
        if not policy.vrdma_ports:
            yield "vrdma_kind", "sriov needs vrdma_ports"
        elif policy.confine_guests:
            why = "no rule of a node holds a guest on a virtual function to its address"
            yield "vrdma_kind", f"sriov does not go with confine_guests: {why}"


def _vhost_user(policy: Policy) -> t.Iterator[tuple[str, str]]:
    for name in ("vrdma_bridge", "vrdma_addresses"):
        if not getattr(policy, name):
            yield "vrdma_kind", f"vhostuser needs {name}"
    if policy.vrdma_addresses:
        networks = networks_of(policy)
        try:
            own = guest_networks.rdma_network(policy.vrdma_bridge or "", policy.vrdma_addresses)
        except ValueError as error:
            yield "vrdma_addresses", str(error)
            return
        # beside the others, whose own contradictions are theirs
        known = set(guest_networks.find_contradictions(networks, policy.bridge, policy.node_number, confine=True))
        terms = ((*networks, own), policy.bridge, policy.node_number)
        found = guest_networks.find_contradictions(*terms, confine=True)
        yield from (("vrdma_addresses", why) for why in found if why not in known)


def _networks(policy: Policy) -> t.Iterator[tuple[str, str]]:
    networks = networks_of(policy)
    terms = (networks, policy.bridge, policy.node_number)
    found = guest_networks.find_contradictions(*terms, confine=policy.confine_guests)
    yield from (("networks", why) for why in found)
    free = [network.name for network in networks if not network.confined]
    if free and policy.allow_user_images:
        yield "networks", f"{free[0]}: confined=no does not go with allow_user_images: who makes an image is root in it"
    if policy.network_default and (why := guest_networks.objection(policy.network_default, networks)):
        yield "network_default", why


def networks_of(policy: Policy) -> tuple[guest_networks.Network, ...]:
    """Return the further networks of the site.

    Args:
        policy: lists them.
    """
    return tuple(map(guest_networks.read_line, policy.networks))


def has_private_network(chosen: t.Container[str], policy: Policy) -> bool:
    """Return whether a job gets a network for itself.

    Args:
        chosen: names of the networks that it asks for.
        policy: lists them.
    """
    return any(network.private for network in networks_of(policy) if network.name in chosen)


def _unavailable(policy: Policy) -> t.Iterator[tuple[str, str]]:
    if policy.hypervisor_default == FORMER_HYPERVISOR:
        yield "hypervisor_default", SKVM
    for key in HOOK_SCRIPTS:
        why = facts_of(policy.batch_system).no_hook_scripts
        if why and getattr(policy, DEFAULT_OF[key]) is not None:
            yield DEFAULT_OF[key], why
    for default, gate in GATES.items():
        if getattr(policy, default) and not getattr(policy, gate):
            yield default, f"needs {gate}: who asks for nothing cannot get what the site has not"


def _bounds(policy: Policy) -> t.Iterator[tuple[str, str]]:
    crossed = set()
    for key, (low, high) in BOUNDS_OF.items():
        least, greatest = getattr(policy, low), getattr(policy, high)
        if least is not None and greatest is not None and least > greatest:
            if low not in crossed:  # two keys may have the same bounds
                yield low, f"is more than {high} ({format_for_request(key, greatest)})"
            crossed.add(low)
        elif message := out_of_bounds(key, getattr(policy, DEFAULT_OF[key]), policy):
            yield DEFAULT_OF[key], message
    if "unclot_shmem_min" not in crossed and (message := out_of_bounds("unclot_shmem", region_mib(policy), policy)):
        region = format_mib(region_mib(policy))
        yield "unclot_shmem_default", f"is raised to a power of two, {region}: {message}"


def out_of_bounds(key: str, value: Value | None, policy: Policy) -> str:
    """Why a number of a request is beyond the site's bounds, or "".

    Args:
        key: of a request.
        value: None, or what is no number, is within all bounds.
        policy: holds the bounds.
    """
    if key not in BOUNDS_OF or not isinstance(value, int):
        return ""
    least, greatest = (t.cast("int | None", getattr(policy, name)) for name in BOUNDS_OF[key])
    if least is not None and value < least:
        return f"at least {format_for_request(key, least)} on this site"
    if greatest is not None and value > greatest:
        return f"at most {format_for_request(key, greatest)} on this site"
    return ""


def format_for_request(key: str, value: Value) -> str:
    """A value as a user writes it in a request: MiB as a size."""
    return (
        format_mib(value)
        if key in ("ram", "unclot_shmem") and isinstance(value, int)
        else format_value(encode_value(value))
    )
