# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node must know of its site to make guests; taken from the site's policy by `vtorque-node`."""

from __future__ import annotations

import pathlib
import re

from ...effects import leaves_nothing
from ...errors import SiteFault
from ...frozen import frozen
from ...rendering.templates import SITE_DIR
from ...site_lists.guest_networks import MOST, Network
from ...site_lists.health_sources import HealthSource
from ...site_lists.mounts import Mount
from ...state.event_log import LogSettings
from ...state.layout import RUN_DIR, STATE_DIR, job_key
from ...wire.pci import PciClass

MAX_SLOT = 255
"""A slot is the last byte of a guest's MAC address."""
PROLOGUE, EPILOGUE = "prologue", "epilogue"
"""The site's own scripts in guests (`site_scripts.py`)."""


@frozen
@leaves_nothing
class NodeSettings:
    """The settings of this node: everything that a request must not decide.

    Attributes:
        node_name: short host name of this node; guests are called `v<node_name>-<slot>`.
        node_number: unique in the cluster; two bytes of every guest's MAC address. None: the site has not said.
        mac_prefix: first three bytes of every guest's MAC address.
        pool: the image pool.
        cache_share: of the disk that `state_dir` is on, for copies of images; where `cache_bytes` does not say it.
        cache_bytes: for copies of images; None: `cache_share` counts.
        ramdisk_dir: a tmpfs, for copies in memory.
        cache_rate_mib: MiB a second at which an image is read from the pool to be kept or checked; None: any.
        state_dir: holds `guests`, `slots` and `records`; local to the node, survives a reboot.
        run_dir: holds locks and tombstones; gone with a reboot, as the guests are.
        template_dir: the site's own templates, searched first.
        hypervisor_default: what a job of this site gets that does not ask: `kvm` or `qemu`.
        arch_default: the same for the architecture.
        own_images_mib: the greatest disk, in MiB, of an image of a user's own; 0: the site allows none.
        host_ram_mib: memory in MiB that is kept free for the host.
        host_cores: cores that no vCPU has to itself.
        cores_may_change: the job's cores are a guess, since its cpuset is still to come: nothing can be pinned to them.
        pages_raise: whether the pools of huge pages may be raised for a start, and lowered after it.
        io_cores: whether jobs may have cores for virtual I/O here.
        numad: the program, whose advice on cells is followed; None: nobody is asked.
        max_guests: guests that this node bears at the same time.
        leases_files: DHCP leases that can be read here, of dnsmasq or of libvirt's own networks.
        ip_to_mac_script: prints the address of a guest, given node, guests per node, guest number; None: no static map.
        ssh_timeout_s: seconds for one connection to a guest.
        ready_timeout_s: seconds for a guest to become ready.
        console_keep_bytes: how much of a console's end outlives its guest.
        guest_hooks_dir: the site's own scripts for guests (`site_scripts.py`).
        network_filter: a libvirt network filter for every guest's interface, or None.
        confine_guests: hold guests to their own addresses, and to whom they may reach (`nft_rules.py`).
        networks: further networks that guests may be on.
        guest_programs: templates of the batch system's programs that guests have in their PATH.
        guest_variables: what scripts in guests find of the job (`variables_of`).
        guest_scripts: where the job's scripts lie in a guest, below `torque_home`.
        updates_s: seconds that a guest's security updates may take; 0: none are installed.
        may_reach: whom, besides their job and what they mount.
        home_via: how the user's home reaches their guests: `nfs`, or `virtiofs` from where this node has it.
        home_export: the export that stands for /home; None: no home by NFS.
        mounts: what else every guest mounts.
        mount_s: for so many seconds a guest tries to mount something before it gives up.
        pci_classes: PCI devices of this node that guests may have.
        shares_regions: whether guests of a job may share a region of memory.
        rdma_kind: of the RDMA devices that guests of this node may have; "": they may have none.
        rdma_ports: network cards whose virtual functions guests may have, by name.
        rdma_vlan: of these functions, or of ports on `rdma_bridge`; None: none.
        rdma_bridge: of Open vSwitch with DPDK, on which guests may have a card; "": none.
        rdma_addresses: from which they have theirs there, an IPv4 network.
        suspend_guests: what becomes of guests whose job is suspended: `pause`, `save` or `session`.
        checkpoint_dir: where all nodes have the checkpoints of jobs; None: the site has none.
        health_sources: what reports that this node is degrading.
        side_channels: what guests of different jobs must not share here (`system/side_channels.py`).
        virtiofsd: where the program may be; the first that is there.
        sample_s: seconds between two samples of the guests' figures; 0: none are taken.
        metrics: what becomes of them: `off`, `record`, `textfile` or `both`.
        metrics_dir: from where the node exporter reads them.
        metrics_tag: what the site calls them (`series.format_tag`).
        warm_start: whether guests may start from templates.
        warm_days: for which a template of warm starts is good.
        warm_max: so many templates at most.
        log: what the site decides of the log.
    """

    node_name: str
    node_number: int | None
    mac_prefix: str = "52:54:00"
    pool: pathlib.Path = pathlib.Path("/opt/vm-images")
    cache_share: float = 0.2
    cache_bytes: int | None = None
    cache_rate_mib: int | None = None
    ramdisk_dir: pathlib.Path = pathlib.Path("/ramdisk")
    state_dir: pathlib.Path = STATE_DIR
    run_dir: pathlib.Path = RUN_DIR
    template_dir: pathlib.Path | None = SITE_DIR
    libvirt_uri: str = "qemu:///system"
    bridge: str = "br0"
    allow_emulation: bool = False
    own_images_mib: int = 0
    hypervisor_default: str = "kvm"
    arch_default: str = "x86_64"
    host_ram_mib: int = 2048
    host_cores: int = 0
    cores_may_change: bool = False
    pages_raise: bool = True
    io_cores: bool = False
    numad: pathlib.Path | None = None
    max_guests: int = 4
    leases_files: tuple[pathlib.Path, ...] = ()
    ip_to_mac_script: pathlib.Path | None = None
    torque_home: pathlib.Path = pathlib.Path("/var/spool/torque")
    domain: str | None = None
    name_server: str | None = None
    search_domain: str | None = None
    ntp_servers: tuple[str, ...] = ()
    ssh_timeout_s: float = 5.0
    ready_timeout_s: float = 120.0
    console_keep_bytes: int = 1 << 20
    guest_hooks_dir: pathlib.Path = pathlib.Path("/etc/vtorque/guest-hooks")
    network_filter: str | None = None
    confine_guests: bool = False
    may_reach: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    guest_programs: tuple[str, ...] = ()
    guest_variables: tuple[tuple[str, str], ...] = ()
    guest_scripts: str = "jobs"
    updates_s: int = 0
    home_via: str = "nfs"
    home_export: str | None = None
    mounts: tuple[Mount, ...] = ()
    mount_s: int = 3
    pci_classes: tuple[PciClass, ...] = ()
    shares_regions: bool = False
    rdma_kind: str = ""
    rdma_ports: tuple[str, ...] = ()
    rdma_vlan: int | None = None
    rdma_bridge: str = ""
    rdma_addresses: str = ""
    suspend_guests: str = "pause"
    checkpoint_dir: pathlib.Path | None = None
    health_sources: tuple[HealthSource, ...] = ()
    side_channels: str = "off"
    virtiofsd: tuple[pathlib.Path, ...] = (
        pathlib.Path("/usr/libexec/virtiofsd"),
        pathlib.Path("/usr/lib/qemu/virtiofsd"),
    )
    sample_s: int = 0
    metrics: str = "record"
    metrics_dir: pathlib.Path = pathlib.Path("/var/lib/prometheus/node-exporter")
    metrics_tag: str = "snapTask-[username]-[jobid]"
    warm_start: bool = False
    warm_days: int = 7
    warm_max: int = 4
    log: LogSettings = LogSettings()
    qemu_img: pathlib.Path = pathlib.Path("/usr/bin/qemu-img")
    qemu_nbd: pathlib.Path = pathlib.Path("/usr/bin/qemu-nbd")
    ssh: pathlib.Path = pathlib.Path("/usr/bin/ssh")
    sshd: pathlib.Path = pathlib.Path("/usr/sbin/sshd")
    flock: pathlib.Path = pathlib.Path("/usr/bin/flock")
    nft: pathlib.Path = pathlib.Path("/usr/sbin/nft")

    def variables_of(self, job_id: str) -> dict[str, str]:
        """Return what scripts in guests find of a job, under the batch system's names (`GuestTable`).

        Args:
            job_id: of the job.
        """
        number, _dot, cluster = job_id.partition(".")
        values = {"job_id": job_id, "number": number, "cluster": cluster}
        values["node_file"] = f"{self.torque_home}/aux/{job_id}"
        return {name: form.format_map(values) for name, form in self.guest_variables}

    @property
    def guests_dir(self) -> pathlib.Path:
        """One directory a start of a job, one below it a guest."""
        return self.state_dir / "guests"

    @property
    def images_dir(self) -> pathlib.Path:
        """What this node keeps of the pool, and what it wants of it (`copy_store.py`, `copy_queue.py`)."""
        return self.state_dir / "images"

    @property
    def warm_dir(self) -> pathlib.Path:
        """Templates from which guests start warm, one directory each (`warm/template.py`)."""
        return self.state_dir / "warm"

    @property
    def compiled_dir(self) -> pathlib.Path:
        """What templates were compiled to (`bytecode_cache.py`); gone with a reboot."""
        return self.run_dir / "templates"

    @property
    def agents_dir(self) -> pathlib.Path:
        """The node's ends of the channels to its guests; here, because the name of a socket has 107 bytes at most."""
        return self.run_dir / "agents"

    @property
    def vhost_user_dir(self) -> pathlib.Path:
        """One directory a port of Open vSwitch, with the socket of its guest; here for the same reason."""
        return self.run_dir / "vhostuser"

    def agent_socket(self, slot: int) -> pathlib.Path:
        """The node's end of the channel to the guest in this slot."""
        return self.agents_dir / str(slot)

    @property
    def devices_dir(self) -> pathlib.Path:
        """Which host devices starts have, and which are in quarantine (`devices/leases.py`)."""
        return self.state_dir / "devices"

    @property
    def pages_dir(self) -> pathlib.Path:
        """By how much starts have raised this node's pools of huge pages, one file each (`placement/hugepages.py`)."""
        return self.state_dir / "hugepages"

    @property
    def interrupts_dir(self) -> pathlib.Path:
        """Where this node's interrupts came to before starts moved them, one file each (`io_cores/interrupts.py`)."""
        return self.state_dir / "interrupts"

    @property
    def private_dir(self) -> pathlib.Path:
        """Numbers of the networks that starts have for themselves, one file each (`network/private.py`)."""
        return self.run_dir / "networks"

    @property
    def bare_dir(self) -> pathlib.Path:
        """One directory a start of a job for which this node stays bare (`bare_host.py`)."""
        return self.run_dir / "bare"

    @property
    def authorized_keys_dir(self) -> pathlib.Path:
        """What this node's sshd reads besides the users' own files: one file a user."""
        return self.run_dir / "authorized_keys"

    def guest_script(self, kind: str, rank: int) -> pathlib.Path:
        """Return where the site's own script for the guest of a rank is, if there is one.

        Args:
            kind: PROLOGUE or EPILOGUE.
            rank: of the guest in its job.
        """
        return self.guest_hooks_dir / (kind if rank == 0 else f"{kind}.parallel")

    @property
    def guest_prologues(self) -> tuple[pathlib.Path, ...]:
        """What guests may run before the job: in rank 0, and in the others."""
        return tuple(self.guest_script(PROLOGUE, rank) for rank in (0, 1))

    @property
    def slots_dir(self) -> pathlib.Path:
        """One link a slot that is taken."""
        return self.state_dir / "slots"

    def start_dir(self, job_id: str, start: int) -> pathlib.Path:
        """Where every file of this start's guests lies."""
        return self.guests_dir / job_key(job_id, start)

    def record_dir(self, job_id: str, start: int) -> pathlib.Path:
        """Where what outlives this start is kept."""
        return self.state_dir / "records" / job_key(job_id, start)

    def mac(self, slot: int, card: int = 0) -> str:
        """The MAC address that the guest in this slot has, on this node and no other.

        Args:
            slot: of the guest.
            card: 0: of its first card; else its number, which is in the first byte of a locally administered address.

        Raises:
            SiteFault: the node has no number yet.
        """
        if self.node_number is None:
            raise SiteFault(
                "node_number is not set",
                "without it two nodes could give out the same MAC address",
                f"give {self.node_name} a number of its own in vtorque.yml",
            )
        first, rest = self.mac_prefix.split(":", 1)
        prefix = f"{(int(first, 16) | 2) ^ card << 4:02x}:{rest}" if card else self.mac_prefix
        return f"{prefix}:{self.node_number >> 8:02x}:{self.node_number & 0xFF:02x}:{slot:02x}"

    def guest_name(self, slot: int) -> str:
        """Host name and domain name of the guest in this slot."""
        return f"v{self.node_name}-{slot}"

    def tap_name(self, slot: int, card: int = 0) -> str:
        """Network device of a card of the guest in this slot; libvirt leaves names alone that are not `vnet...`."""
        return f"vtq{slot}n{card}" if card else f"vtq{slot}"

    def tap_names(self, slot: int) -> tuple[str, ...]:
        """All network devices that the guest in this slot can have."""
        return tuple(self.tap_name(slot, card) for card in range(1 + MOST))

    @staticmethod
    def slot_of(device: str) -> int | None:
        """Return the slot of the guest whose network device this is; None: it is no guest's."""
        found = re.fullmatch(rf"vtq([0-9]{{1,3}})(n[1-{MOST}])?", device)
        return int(found[1]) if found else None
