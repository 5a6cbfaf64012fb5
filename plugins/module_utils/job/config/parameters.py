# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of the site's parameters: name, kind, default, meaning, and former names.

`Policy` is the table: a field is a parameter, and `PARAMETERS` describes it.  In the original a parameter had its
name in capitals; where it was called otherwise, the former name stands in `old`.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...frozen import frozen
from ...site_lists import guest_networks, health_sources
from ...site_lists import mounts as mounts_of_guests
from ...state import event_log
from ...wire import pci
from ...wire.messages import ADDRESS, RDMA_KINDS
from ..request.host_expressions import host_pattern
from ..request.keys import KEYS
from ..request.value_types import (
    Kind,
    Value,
    boolean,
    choice,
    either,
    number,
    part_of_all,
    path,
    several,
    size_mib,
    text,
)
from ..request.value_types import line as _line
from .batch_systems import BATCH_SYSTEMS
from .disk_share import room_on_disk


@frozen
class Parameter:
    """One parameter of the site, described.

    Attributes:
        name: as it is written in vtorque.yml.
        kind: how its value is read.
        default: what holds when the file is silent; None: nothing is set.
        meaning: one sentence for people.
        old: further names it had in the original; `legacy.SAME` says which had their own.
        section: what the group is about that begins with this parameter, or "".
    """

    name: str
    kind: Kind
    default: Value | None
    meaning: str
    old: tuple[str, ...]
    section: str


def _mount(line: str) -> str:
    mounts_of_guests.read_line(line)
    return " ".join(line.split())


def _parameter(kind: Kind, default: object, meaning: str, *, old: tuple[str, ...] = (), section: str = "") -> t.Any:
    common = {"kind": kind, "meaning": meaning, "old": old, "section": section}
    return dataclasses.field(default=default, metadata=common)  # pylint: disable=invalid-field-call


def _default_of(
    key: str,
    default: object,
    *,
    kind: Kind | None = None,
    old: tuple[str, ...] = (),
    section: str = "",
) -> t.Any:
    meaning, kind = f"default of {key}: {KEYS[key].meaning}", kind or KEYS[key].kind
    # the original's 0 for on is a habit of its command line; its configuration said true and false
    kind = _FLAG if kind.form == "flag" else kind
    return _parameter(kind, default, meaning, old=old, section=section)


_SECONDS = number(1, 3600)
_FLAG = boolean()
_PATH = path()
_HOSTS = host_pattern()
_CORES = number(1, 4096)
_RAM = size_mib(16, 2**24)
_REGION = size_mib(1, 2**24)
_NAME = text(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?", "a host or domain name, or an address")
_SERVER = text(r"[A-Za-z0-9:]([A-Za-z0-9.:_-]{0,252}[A-Za-z0-9:])?", "a host name or an address")
_REACHED = text(
    r"([0-9]{1,3}\.){3}[0-9]{1,3}(/([0-9]|[12][0-9]|3[0-2]))?|[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?",
    "a host name, an IPv4 address or a network (10.2.0.0/16)",
)
_CARD = text(r"[A-Za-z0-9._-]{1,15}", "the name of an interface")
_HOME_FILE = text(
    r"~/[^,;\x00-\x1f\x7f\ud800-\udfff]{1,900}", "~/PATH: the file in each user's home, where there is one"
)
_SITE_FILE = either(path("an absolute path that all users may read"), _HOME_FILE)
_ADDRESS = text(ADDRESS, "an address")
_EXPORT = text(mounts_of_guests.EXPORT, "an export (server:/path)")
_WORD = text(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", "a word of letters, digits and . _ + -")
_LINE = text(r"[^\x00-\x1f\x7f]{1,500}", "one line of text")

_METRICS = choice("off", "record", "textfile", "both")
DEFAULT_PREFIX, _TAG = "/opt/vtorque", "snapTask-[username]-[jobid]"


@frozen
class Policy:
    """The site's configuration: one attribute a parameter, checked; sizes are in MiB, times in seconds."""

    prefix: str = _parameter(
        _PATH,
        DEFAULT_PREFIX,
        "where the product is installed on front ends",
        old=("VTORQUE_DIR",),
        section="where things are",
    )
    prefix_nodes: str = _parameter(_PATH, DEFAULT_PREFIX, "where it is installed on nodes: a local file system")
    batch_system: str = _parameter(choice(*BATCH_SYSTEMS), "torque", "the batch system of the site")
    torque_home: str = _parameter(_PATH, "/var/spool/torque", "home directory of Torque or OpenPBS")
    pbs_qsub_on_fe: str = _parameter(
        _PATH, "/usr/bin/qsub", "the batch system's qsub on front ends", old=("REAL_QSUB_ON_SERVER", "REAL_QSUB_ON_FE")
    )
    pbs_qsub_on_nodes: str = _parameter(
        _PATH, "/usr/bin/qsub", "the batch system's qsub on nodes", old=("REAL_QSUB_ON_NODES",)
    )
    slurm_bin: str | None = _parameter(_PATH, None, "directory of Slurm's commands; else that of pbs_qsub_on_*")
    regex_fe: str = _parameter(_HOSTS, ".*", "the hosts that use pbs_qsub_on_fe")
    template_dir: str = _parameter(_PATH, "/etc/vtorque/templates", "the site's own templates, searched first")
    vm_img_dir: str = _parameter(
        _PATH,
        "/opt/vm-images",
        "the image pool, writable for root alone",
        old=("IMAGE_POOL", "IMAGE_POOL_DIR", "VM_IMAGE_DIR"),
    )
    image_max: int = _parameter(_RAM, 2**21, "largest disk of an image in the pool, as a guest sees it")
    ramdisk_dir: str = _parameter(_PATH, "/ramdisk", "a tmpfs on nodes, for fs_type=ramdisk")

    disable_mikelangelo_hpc_stack: bool = _parameter(
        _FLAG,
        False,
        "vsub passes jobs without a VM request to the batch system and refuses the others",
        section="who may submit VM jobs, and where they run",
    )
    disabled_hosts_list: str | None = _parameter(_HOSTS, None, "the hosts on which vsub refuses VM jobs")
    vm_node_property: str | None = _parameter(_WORD, None, "node property of VM nodes, which vsub requests")
    pbs_exclusive_node_alloc: bool = _parameter(_FLAG, True, "vsub requests whole nodes (qsub -n, sbatch --exclusive)")
    side_channels: str = _parameter(
        choice("off", "exclusive", "cores", "strict"), "off", "what guests of different jobs must not share on a node"
    )
    kill_user_processes_after_job: bool = _parameter(
        _FLAG, True, "end leftover processes of a job on a node that it had alone"
    )
    allow_emulation: bool = _parameter(_FLAG, False, "allow hypervisor=qemu, software emulation")
    allow_user_images: bool = _parameter(
        _FLAG, False, "allow img=<path of a user's image>; needs confine_guests, and guests that mount nothing by NFS"
    )

    host_os_core_count: int = _parameter(
        number(0, 4096), 1, "cores of a node that are reserved for the host", section="what a node reserves and offers"
    )
    host_os_ram_mb: int = _parameter(number(0, 2**24), 2048, "memory of a node that is reserved for the host, in MiB")
    max_vms_per_node: int = _parameter(number(1, 1000), 4, "greatest vms_per_node of a request")
    vms_per_node_min: int | None = _parameter(number(1, 1000), None, "least vms_per_node of a request")
    vcpus_min: int | None = _parameter(_CORES, None, "least vcpus of a request")
    vcpus_max: int | None = _parameter(_CORES, None, "greatest vcpus of a request")
    ram_min: int | None = _parameter(_RAM, None, "least ram of a request")
    ram_max: int | None = _parameter(_RAM, None, "greatest ram of a request")
    unclot_shmem_min: int | None = _parameter(_REGION, None, "least unclot_shmem of a request")
    unclot_shmem_max: int | None = _parameter(_REGION, None, "greatest unclot_shmem of a request")
    nodes_min: int | None = _parameter(_CORES, None, "least nodes of a request")
    nodes_max: int | None = _parameter(_CORES, None, "greatest nodes of a request")
    suspend_guests: str = _parameter(
        choice("pause", "save", "session"),
        "pause",
        "guests of a suspended job: pause them, save their memory to disk, or stop the job's session alone",
    )
    spare_nodes: tuple[str, ...] = _parameter(several(_NAME), (), "nodes set aside for guests that move while they run")
    checkpoint_dir: str | None = _parameter(_PATH, None, "directory that all nodes share, for checkpoints of jobs")
    checkpoint_min: int = _parameter(number(0, 10_080), 10, "least minutes between two checkpoints of a job")
    checkpoint_pause: int = _parameter(number(5, 3600), 60, "seconds that guests stand still for a checkpoint at most")
    pci_classes: tuple[str, ...] = _parameter(
        several(_line(pci.FORM, lambda line: pci.format_line(pci.read_line(line)))),
        (),
        "PCI devices that guests may have: lines `class address ... option=value ...`",
    )
    hugepages_raise: bool = _parameter(_FLAG, True, "a node sets pages aside for hugepages= and gives them back")
    numad: str | None = _parameter(_PATH, None, "the program numad, whose advice on NUMA cells is followed if it fits")
    libvirt_uri: str = _parameter(
        text(r"[a-z+]{1,32}://\S{0,200}", "a libvirt URI"), "qemu:///system", "the hypervisor"
    )

    bridge: str = _parameter(
        _CARD,
        "br0",
        "bridge of the guests",
        section="the guests' network",
    )
    mac_prefix: str = _parameter(
        text(r"[0-9a-f][02468ace]:[0-9a-f]{2}:[0-9a-f]{2}", "three bytes in quotes, such as '52:54:00'", lower=True),
        "52:54:00",
        "first half of every guest's MAC address; in quotes, since YAML reads it as a time",
    )
    node_number: int | None = _parameter(number(0, 16383), None, "this node's number, unique in the cluster")
    custom_ip_mapping: bool = _parameter(
        _FLAG, False, "addresses come from ip_to_mac_script, not from DHCP", old=("STATIC_IP_MAPPING",)
    )
    ip_to_mac_script: str | None = _parameter(
        _PATH, None, "executable: node, guests per node, guest number; prints the guest's address"
    )
    dhcp_leases_file: str | None = _parameter(_PATH, None, "the DHCP server's file of leases, if nodes can read it")
    confine_guests: bool = _parameter(
        _FLAG,
        True,
        "confine guests to their own addresses and permitted hosts; needs nftables, and no Open vSwitch",
    )
    guest_may_reach: tuple[str, ...] = _parameter(
        several(_REACHED), (), "hosts that guests may reach besides their job, its mounts, name and time servers"
    )
    networks: tuple[str, ...] = _parameter(
        several(_line(guest_networks.FORM, lambda line: guest_networks.format_line(guest_networks.read_line(line)))),
        (),
        "further networks that jobs may ask for: lines `name kind option=value ...`",
    )
    domain: str | None = _parameter(_NAME, None, "domain of the guests")
    name_server: str | None = _parameter(_ADDRESS, None, "address of the guests' name server")
    search_domain: str | None = _parameter(_NAME, None, "search domain of the guests")
    ntp_server_1: str | None = _parameter(_SERVER, None, "first time server of the guests")
    ntp_server_2: str | None = _parameter(_SERVER, None, "second time server of the guests")

    home_via: str = _parameter(
        choice("nfs", "virtiofs"),
        "nfs",
        "how guests get homes: from vm_nfs_home, or from the node's directory",
        section="what guests mount and install",
    )
    vm_nfs_home: str | None = _parameter(_EXPORT, None, "export for /home; a guest mounts the home of its user")
    vm_nfs_ws: str | None = _parameter(_EXPORT, None, "export for /workspace")
    vm_nfs_opt: str | None = _parameter(_EXPORT, None, "export for /opt-hpc")
    mounts: tuple[str, ...] = _parameter(
        several(_line(mounts_of_guests.FORM, _mount)),
        (),
        "further mounts of every guest: lines `source target kind options`",
    )
    metadata_packages: tuple[str, ...] = _parameter(
        several(_WORD), (), "packages that users may name in a file of metadata="
    )
    security_updates: bool = _parameter(
        _FLAG, False, "install security updates in guests before their job, within security_updates_timeout"
    )
    security_updates_timeout: int = _parameter(
        number(10, 3600), 60, "seconds that security updates may take; the job runs whatever the result is"
    )

    ssh_timeout: int = _parameter(_SECONDS, 5, "seconds for a connection by ssh", section="time, faults, records")
    timeout: int = _parameter(_SECONDS, 120, "seconds for a guest to become ready")
    prologue_timeout: int = _parameter(_SECONDS, 270, "seconds for the prologue; the batch system must wait 10 s more")
    vm_epilogue_timeout: int = _parameter(_SECONDS, 30, "seconds for a user's vm_epilogue in the guest")
    nfs_timeout: int = _parameter(_SECONDS, 3, "seconds in which a guest tries each mount; a begun try takes up to 10")
    node_fault_retries: int = _parameter(number(1, 1000), 3, "starts after which a failing job is held")
    offline_brake: str = _parameter(part_of_all(), "max(2, 2 %)", "nodes that vTorque may set offline; 0: none")
    health_sources: tuple[str, ...] = _parameter(
        several(_line(health_sources.FORM, health_sources.write_line)), (), "what makes a node degrading, a line each"
    )
    on_degrading: str = _parameter(
        choice("note", "checkpoint", "evacuate"), "note", "for a degrading node: a note, or also what its jobs get"
    )
    record_days: int = _parameter(number(1, 36500), 90, "days until records of jobs are deleted")
    record_host: str | None = _parameter(_NAME, None, "the front end that gets a copy of every job's record")
    report_dir: str | None = _parameter(
        _PATH, None, "directory in which the front end writes a page of the site every five minutes; unset: no page"
    )
    cache_max: str = _parameter(room_on_disk(), "20 %", "space on a node's disk for copies of images")
    cache_rate: int | None = _parameter(
        size_mib(1, 2**20), None, "MiB per second at which a node reads an image from the pool; unset: no limit"
    )
    parallel: bool = _parameter(_FLAG, True, "all nodes of a job at the same time")
    fast_start: bool = _parameter(
        _FLAG, True, "begin starts, ends and the question of vsub early; false: a second slower, by Ansible alone"
    )
    warm_start: bool = _parameter(_FLAG, False, "guests start from templates, where their node has one")
    warm_days: int = _parameter(number(1, 365), 7, "days after which a template of warm starts is thrown away")
    warm_max: int = _parameter(number(1, 100), 4, "greatest number of templates of warm starts on a node")

    img_default: str | None = _default_of("img", None, section="defaults of requests")
    distro_default: str | None = _default_of("distro", None)
    arch_default: str = _default_of("arch", "x86_64")
    ram_default: int = _default_of("ram", 24576)
    vcpus_default: int = _default_of("vcpus", 7)
    vms_per_node_default: int = _default_of("vms_per_node", 1)
    vcpu_pinning_default: bool | str = _default_of("vcpu_pinning", True)
    numa_default: str = _default_of("numa", "auto", kind=choice("auto", "off"))
    hugepages_default: str = _default_of("hugepages", "none", kind=choice("none", "auto"))
    filesystem_type_default: str = _default_of("fs_type", "sharedfs")
    disk_default: str | None = _default_of("disk", None, kind=_HOME_FILE)
    metadata_default: str | None = _default_of("metadata", None, kind=_SITE_FILE)
    vm_prologue_default: str | None = _default_of("vm_prologue", None, kind=_SITE_FILE)
    vm_epilogue_default: str | None = _default_of("vm_epilogue", None, kind=_SITE_FILE)
    vrdma_enabled_default: bool = _default_of("vrdma", False)
    iocm_enabled_default: bool = _default_of("iocm", False)
    unclot_enabled_default: bool = _default_of("unclot", False)
    iocm_min_cores_default: int = _default_of("iocm_min_cores", 1)
    iocm_max_cores_default: int = _default_of("iocm_max_cores", 4)
    unclot_shmem_default: int | None = _default_of("unclot_shmem", None, old=("UNCLOT_SHMEM",))
    hypervisor_default: str = _default_of("hypervisor", "kvm")
    nodes_default: int | None = _default_of("nodes", None)
    spare_default: int | None = _default_of("spare", None)
    pci_default: tuple[str, ...] | None = _default_of("pci", None)
    network_default: tuple[str, ...] | None = _default_of("network", None)
    checkpoint_default: str = _default_of("checkpoint", "off")
    checkpoint_every_default: int | None = _default_of("checkpoint_every", None)

    vrdma_enabled: bool = _parameter(_FLAG, False, "guests may have an RDMA device (vrdma)", section="components")
    vrdma_kind: str = _parameter(choice(*RDMA_KINDS), RDMA_KINDS[0], "of which kind that device is")
    vrdma_ports: tuple[str, ...] = _parameter(several(_CARD), (), "cards whose virtual functions guests may have")
    vrdma_bridge: str | None = _parameter(_CARD, None, "bridge of Open vSwitch with DPDK (vhostuser)")
    vrdma_addresses: str | None = _parameter(_LINE, None, "IPv4 network of the guests there (10.9.0.0/16)")
    vrdma_vlan: int | None = _parameter(number(1, 4094), None, "VLAN of these virtual functions or ports")
    vrdma_nodes: str = _parameter(_HOSTS, ".*", "the nodes whose guests may have one")
    iocm_enabled: bool = _parameter(_FLAG, False, "jobs may have cores of their own for virtual I/O (iocm)")
    iocm_min_cores: int = _parameter(_CORES, 1, "least iocm_min_cores and iocm_max_cores of a request")
    iocm_max_cores: int = _parameter(_CORES, 12, "greatest iocm_min_cores and iocm_max_cores of a request")
    iocm_nodes: str = _parameter(_HOSTS, ".*", "the nodes on which jobs may have such cores")
    unclot_enabled: bool = _parameter(_FLAG, False, "guests of a job on a host may share a region of memory (unclot)")
    metrics: str = _parameter(_METRICS, "record", "where figures of guests go", old=("SNAP_MONITORING_ENABLED",))
    sample_s: int = _parameter(number(0, 3600), 30, "seconds between two samples of guests; 0: none")
    metrics_dir: str = _parameter(_PATH, "/var/lib/prometheus/node-exporter", "textfile directory of a node exporter")
    metrics_tag: str = _parameter(_LINE, _TAG, "tag of figures; also [node], [rank]", old=("SNAP_TAG_FORMAT",))

    debug_default: bool = _parameter(_FLAG, False, "log in detail, unless the user sets DEBUG", section="log")
    trace_default: bool = _parameter(_FLAG, False, "log every step, unless the user sets TRACE")
    show_log_default: bool = _parameter(
        _FLAG, False, "print the log in the job's error file, unless the user sets SHOW_LOG"
    )
    log_levels: tuple[str, ...] = _parameter(
        several(_line(event_log.FORM, event_log.read_level)),
        (),
        "least level logged, by component; else info",
    )
    log_file: str | None = _parameter(_PATH, None, "file on each host that gets the lines of all jobs and programs")
    log_format: str = _parameter(choice(*event_log.FORMATS), event_log.TEXT, "form of the lines of log_file")
    log_rotate: bool = _parameter(_FLAG, True, "bound the size of logs of hosts; false: the site does it")
    log_program: str | None = _parameter(_PATH, None, "the site's program that gets lines from a level on, as nobody")
    log_program_level: str = _parameter(choice(*event_log.LEVELS), event_log.ERROR, "least level for log_program")


PARAMETERS: dict[str, Parameter] = {
    f.name: Parameter(f.name, default=t.cast(t.Any, f.default), **f.metadata) for f in dataclasses.fields(Policy)
}
"""Every parameter by its name, in the order in which the file shows them."""

_IN_IMAGE = "packages belong in the image, where no job waits for them: guest_image_extra_packages of role guest_image"
RETIRED: dict[str, str] = {
    "ws_dir": "the disk of a guest stands on its node or on the pool, and on no other shared directory",
    "arp_bin": "addresses are read from the kernel's own table of neighbours, without a program",
    **dict.fromkeys(("sw_packages_debian", "sw_packages_redhat"), _IN_IMAGE),
    "snap_bin_dir": "no collector is needed: each job's worker samples its guests (metrics, sample_s)",
    "print_to_stdout": "standard output is the job's own: SHOW_LOG=true vsub prints the log in the job's error file",
    "abort_on_error": "a start goes on without a node that fails where its job has a spare one (-vm spare=1)",
    "enable_dev_mode": "DEBUG=true vsub logs a job in detail, and its record has the consoles of its guests",
}
"""Former parameters, of which only the default could be set, and why there is none any more: they are read over."""

DEFAULT_OF: dict[str, str] = {
    **{key: f"{key}_default" for key in KEYS},
    "fs_type": "filesystem_type_default",
    "warm": "warm_start",
    **{component: f"{component}_enabled_default" for component in ("vrdma", "iocm", "unclot")},
}
"""For each key of a request the parameter that holds the site's default."""

SITE_FILES = ("disk", "metadata", "vm_prologue", "vm_epilogue")
"""Keys whose default names a file, which only its user reads: vsub puts it into the request as if they had said it."""

BOUNDS_OF: dict[str, tuple[str, str]] = {
    "ram": ("ram_min", "ram_max"),
    "vcpus": ("vcpus_min", "vcpus_max"),
    "vms_per_node": ("vms_per_node_min", "max_vms_per_node"),
    "iocm_min_cores": ("iocm_min_cores", "iocm_max_cores"),
    "iocm_max_cores": ("iocm_min_cores", "iocm_max_cores"),
    "unclot_shmem": ("unclot_shmem_min", "unclot_shmem_max"),
    "nodes": ("nodes_min", "nodes_max"),
}
"""For each number of a request the parameters that bound it."""


def sections() -> tuple[tuple[str, tuple[Parameter, ...]], ...]:
    """The parameters as people see them: what each group is about, and what belongs to it."""
    groups: list[tuple[str, list[Parameter]]] = []
    for parameter in PARAMETERS.values():
        if parameter.section:
            groups.append((parameter.section, []))
        groups[-1][1].append(parameter)
    return tuple((title, tuple(group)) for title, group in groups)
