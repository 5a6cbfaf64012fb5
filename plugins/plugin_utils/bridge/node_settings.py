# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of this node, from the site's policy; and both together for programs that need both."""

from __future__ import annotations

import pathlib
import socket
import typing as t

from ...module_utils.job.batch.registry import open_guest
from ...module_utils.job.config import consistency, disk_share, policy_file
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.request.host_expressions import host_matches
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.site_lists.health_sources import sources_on
from ...module_utils.site_lists.mounts import Mount, read_line
from ...module_utils.wire.pci import classes_on

LEASES = (
    pathlib.Path("/var/lib/misc/dnsmasq.leases"),
    pathlib.Path("/var/lib/dnsmasq/dnsmasq.leases"),
)
"""Where distributions let dnsmasq keep its leases, when it runs on this node."""
LIBVIRT_LEASES = pathlib.Path("/var/lib/libvirt/dnsmasq")
LoadPolicy = t.Callable[[], Policy]
"""Reads the site's policy when it is needed; who hands it on need not know what a policy is."""


class Configuration(t.NamedTuple):
    """The site's configuration on this host.

    Attributes:
        policy: as the batch system's side reads it.
        settings: what the guests' side takes out of it.
    """

    policy: Policy
    settings: NodeSettings


def host_name() -> str:
    """This node's short name, spelled as the node itself spells it: so begin the names of its guests.

    The batch system may spell it in another case; names of hosts are compared without it (`batch.same_host`), also by
    ssh in known_hosts and by whoever reads a hosts file.
    """
    return socket.gethostname().partition(".")[0]


def settings_of(policy: Policy, node_name: str) -> NodeSettings:
    """Return what of the site's policy the packages of `node` need; this is the only place that decides it."""
    leases = [pathlib.Path(policy.dhcp_leases_file)] if policy.dhcp_leases_file else list(LEASES)
    leases.append(LIBVIRT_LEASES / f"{policy.bridge}.status")
    script = pathlib.Path(policy.ip_to_mac_script) if policy.custom_ip_mapping and policy.ip_to_mac_script else None
    guest = open_guest(policy.batch_system)
    return NodeSettings(
        node_name=node_name,
        node_number=policy.node_number,
        mac_prefix=policy.mac_prefix,
        pool=pathlib.Path(policy.vm_img_dir),
        cache_share=disk_share.share_of(policy.cache_max) or 0.0,
        cache_bytes=disk_share.bytes_of(policy.cache_max),
        cache_rate_mib=policy.cache_rate,
        ramdisk_dir=pathlib.Path(policy.ramdisk_dir),
        template_dir=pathlib.Path(policy.template_dir),
        libvirt_uri=policy.libvirt_uri,
        bridge=policy.bridge,
        allow_emulation=policy.allow_emulation,
        own_images_mib=policy.image_max if policy.allow_user_images else 0,
        hypervisor_default=policy.hypervisor_default,
        arch_default=policy.arch_default,
        host_ram_mib=policy.host_os_ram_mb,
        host_cores=policy.host_os_core_count,
        pages_raise=policy.hugepages_raise,
        io_cores=policy.iocm_enabled and host_matches(policy.iocm_nodes, node_name),
        numad=pathlib.Path(policy.numad) if policy.numad else None,
        max_guests=policy.max_vms_per_node,
        leases_files=tuple(leases),
        ip_to_mac_script=script,
        torque_home=pathlib.Path(guest.GUEST_HOME or policy.torque_home),
        domain=policy.domain,
        name_server=policy.name_server,
        search_domain=policy.search_domain,
        ntp_servers=tuple(filter(None, (policy.ntp_server_1, policy.ntp_server_2))),
        ssh_timeout_s=float(policy.ssh_timeout),
        ready_timeout_s=float(policy.timeout),
        home_via=policy.home_via,
        home_export=policy.vm_nfs_home,
        mounts=mounts_of(policy),
        mount_s=policy.nfs_timeout,
        suspend_guests=policy.suspend_guests,
        checkpoint_dir=pathlib.Path(policy.checkpoint_dir) if policy.checkpoint_dir else None,
        side_channels=policy.side_channels,
        health_sources=sources_on(policy.health_sources, node_name),
        pci_classes=classes_on(policy.pci_classes, node_name),
        shares_regions=policy.unclot_enabled,
        rdma_kind=policy.vrdma_kind if policy.vrdma_enabled and host_matches(policy.vrdma_nodes, node_name) else "",
        rdma_ports=policy.vrdma_ports,
        rdma_vlan=policy.vrdma_vlan,
        rdma_bridge=policy.vrdma_bridge or "",
        rdma_addresses=policy.vrdma_addresses or "",
        confine_guests=policy.confine_guests,
        may_reach=policy.guest_may_reach,
        networks=consistency.networks_of(policy),
        guest_programs=guest.GUEST_PROGRAMS,
        guest_variables=tuple(guest.GUEST_VARIABLES.items()),
        guest_scripts=guest.GUEST_SCRIPTS,
        sample_s=policy.sample_s,
        metrics=policy.metrics,
        metrics_dir=pathlib.Path(policy.metrics_dir),
        metrics_tag=policy.metrics_tag,
        warm_start=policy.warm_start,
        warm_days=policy.warm_days,
        warm_max=policy.warm_max,
        log=consistency.log_settings_of(policy),
        updates_s=policy.security_updates_timeout if policy.security_updates else 0,
    )


def policy_loader() -> LoadPolicy:
    """Return what reads the site's policy when it is asked first, and then returns the same."""
    return policy_file.load_once(policy_file.load)


def configuration_of(policy: Policy) -> Configuration:
    """Return the policy with what this host takes out of it.

    Args:
        policy: the site's.
    """
    return Configuration(policy, settings_of(policy, host_name()))


def read_configuration(load: LoadPolicy = policy_file.load) -> Configuration:
    """Read the site's policy, with what this host takes out of it.

    Args:
        load: gives the site's policy.

    Raises:
        SiteFault: it cannot be read, or something in it is wrong.
    """
    return configuration_of(load())


def read_usable_configuration(load: LoadPolicy = policy_file.load) -> Configuration:
    """Read what can be read of the site's policy: one that somebody is changing must not keep what is over.

    Args:
        load: gives the site's policy.
    """
    policy, _broken = policy_file.load_usable(load)
    return configuration_of(policy)


def read_settings(load: LoadPolicy = policy_file.load) -> NodeSettings:
    """Return what this host takes out of the site's policy; as `read_configuration`."""
    return read_configuration(load).settings


def mounts_of(policy: Policy) -> tuple[Mount, ...]:
    """What every guest of the site mounts, besides a home."""
    exports = ((policy.vm_nfs_ws, "/workspace"), (policy.vm_nfs_opt, "/opt-hpc"))
    by_name = tuple(Mount("nfs", export, target) for export, target in exports if export)
    return (*by_name, *map(read_line, policy.mounts))
