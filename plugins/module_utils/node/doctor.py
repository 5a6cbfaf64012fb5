# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the node itself can tell of its health: libvirt, virtualisation, bridge, pool, disk, programs, clock, sweep."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pathlib
import shutil
import socket
import subprocess
import time
import typing as t

from ..errors import NodeFault, SiteFault, VTorqueError
from ..state import delivery_queue
from ..system.clock import Deadline
from ..text import printable
from ..time_budget import SERVER_NAMES_S
from ..wire.health_report import BAD, INSTALL, NONE, OK, WARN, Finding
from . import sweep
from .bare import sshd
from .cache import copy_queue, locations
from .devices import host_devices, shared_region
from .health import causes, degrading, isolation, log_places
from .network import reachable
from .placement import hugepages
from .placement.ledger import page_name
from .pool import images
from .state.settings import NodeSettings
from .storage import virtiofsd
from .system import memory

SWEPT = "swept"
"""A file in the run directory whose time is that of the last sweep."""
SWEEP_LATE_S = 1800.0
SPOOL_LATE_S = 3600.0  # longer than the spool lets a record wait between two tries
SYSTEMD = pathlib.Path("/run/systemd/system")
SYSTEMCTL = "/usr/bin/systemctl"
TIMER = "vtorque-sweep.timer"
TIMER_S = 5.0
NEARLY_FULL = 90
SAID = 5
"""Things that the mark of a sweep names."""
VHOST_NET = pathlib.Path("/dev/vhost-net")
PROC = pathlib.Path("/proc")
MOVERS = ("numad",)
"""Daemons that place processes on cores by themselves."""
IRQ_MOVER = "irqbalance"
"""It moves interrupts and no threads: for as long as a job has cores for virtual I/O, against its worker."""
ANYBODY = "nobody"  # a user of whom sshd's settings are asked
SSHD_S = 8.0
LEFT_S = 10.0
_TIME_ERROR = 5
"""TIME_ERROR of adjtimex(2): nobody keeps the clock."""


def checks(settings: NodeSettings, default_image: str | None = None) -> dict[str, t.Callable[[], Finding]]:
    """Return the checks of this module, by their names.

    Args:
        settings: what the site expects of this node.
        default_image: of jobs that ask for none; None: there is none.
    """
    looks: dict[str, t.Callable[[NodeSettings], Finding]] = {
        "libvirt": check_libvirt,
        "virtualisation": check_virtualisation,
        "vhost-net": check_vhost_net,
        "affinity": check_affinity,
        "bridge": check_bridge,
        "pool": lambda settings: check_pool(settings.pool, default_image),
        "cache": check_cache,
        "disk": check_disk,
        "programs": check_programs,
        "devices": check_devices,
        "pages": check_pages,
        "time": check_clock,
        "sweep": check_sweep,
        "sharing": check_sharing,
        "bare": check_bare,
        "spool": check_spool,
        "log": log_places.check_log,
        "health": degrading.check_health,
    }
    return {**{name: functools.partial(look, settings) for name, look in looks.items()}, **isolation.checks(settings)}


def check_libvirt(settings: NodeSettings) -> Finding:
    """Check that libvirt answers."""
    causes.check_libvirt(settings)
    return Finding("libvirt")


def check_virtualisation(settings: NodeSettings) -> Finding:
    """Check that it can run what a job of this site gets that asks for nothing."""
    try:
        causes.check_virtualisation(settings)
    except NodeFault as fault:
        if fault.cause == "libvirt":  # which has a line of its own
            return Finding("virtualisation", NONE, "-")
        raise
    return Finding("virtualisation", cell=settings.hypervisor_default)


def check_vhost_net(settings: NodeSettings, device: pathlib.Path = VHOST_NET) -> Finding:
    """Check that the kernel carries the network of guests under KVM; software emulation does not use it.

    Args:
        settings: what the site expects of this node.
        device: by which libvirt gets it.
    """
    if settings.hypervisor_default == "qemu":
        return Finding("vhost-net", NONE, "-")
    if device.exists():
        return Finding("vhost-net")
    problem = f"{device} is missing: the main thread of qemu copies each packet of a guest"
    problem += ", and jobs with iocm=true are refused here" if settings.io_cores else ""
    return Finding(
        "vhost-net", WARN, "no", problem, f"modprobe vhost_net, if this kernel has it; {INSTALL} loads it at each boot"
    )


def check_affinity(settings: NodeSettings, proc: pathlib.Path = PROC, uid: int = 0) -> Finding:
    """Check that no daemon moves threads of guests, or interrupts, off the cores that they have for themselves.

    Args:
        settings: say whether jobs have cores for virtual I/O here.
        proc: what the kernel tells of processes.
        uid: whose these daemons are; anybody can give a process such a name, and it moves their own alone.
    """
    for file in proc.glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if file.stat().st_uid != uid:
                continue
            name = file.read_text(encoding="utf-8", errors="replace").strip()
            if name == IRQ_MOVER and settings.io_cores:
                problem = f"{name} (process {file.parent.name}) moves interrupts off the cores for virtual I/O"
                return Finding("affinity", WARN, name, problem, f"systemctl disable --now {name}, or live with it")
            if name in MOVERS:
                problem = (
                    f"{name} (process {file.parent.name}) moves threads and memory of guests with cores of their own"
                )
                return Finding("affinity", WARN, name, problem, f"systemctl disable --now {name}")
    return Finding("affinity")


def check_bridge(settings: NodeSettings) -> Finding:
    """Check that the guests' bridge is there, up, and has an address."""
    causes.check_bridge(settings)
    return Finding("bridge")


def check_pool(pool: pathlib.Path, default: str | None = None) -> Finding:
    """Check that the image pool can be read, and is root's alone.  A bad image beside good ones is a word, no more.

    Args:
        pool: as this host sees it.
        default: the image of jobs that ask for none; None: there is none.
    """
    found = images.list_images(pool)
    wrong = [(name, error) for name, error in found if isinstance(error, VTorqueError)]
    if not found:
        return Finding("pool", BAD, "empty", f"no image in {pool}", "mount it, or see vm_img_dir")
    if len(wrong) == len(found):
        problem = f"none of {len(found)} images can be used: {wrong[0][1]}"
        return Finding("pool", BAD, BAD, problem, "vmgr image list names what is wrong with each")
    if default is not None:
        try:
            images.find(default, pool)
        except VTorqueError as error:
            problem = f"jobs that name no image get {default} (img_default), which cannot be used: {error}"
            return Finding("pool", BAD, BAD, problem, "vmgr image list; or correct img_default")
    if wrong:
        problem = f"{len(wrong)} of {len(found)} images cannot be used: {wrong[0][1]}"
        return Finding("pool", WARN, OK, problem, "vmgr image list names what is wrong with each")
    return Finding("pool")


def check_cache(settings: NodeSettings, systemd: pathlib.Path = SYSTEMD, systemctl: str = SYSTEMCTL) -> Finding:
    """Check that images are fetched that jobs want, and that those which are here can be believed.

    Args:
        settings: says where they are.
        systemd: is there where systemd runs.
        systemctl: its command.
    """
    if systemd.exists() and not _is_active(systemctl, copy_queue.UNIT):
        remedy = f"systemctl enable --now {copy_queue.UNIT}"
        return Finding("cache", BAD, "off", f"{copy_queue.UNIT} does not run: no image is fetched", remedy)
    copies = locations.cache_of(settings).copies()
    share = 100 * sum(copy.held_bytes for copy in copies) // max(1, locations.limit_bytes(settings))
    troubles = [f"copy of {copy.image}: {copy.trouble}" for copy in copies if copy.trouble]
    troubles += [str(error) for _what, error in copy_queue.failures(settings)]
    if troubles:
        return Finding(
            "cache", WARN, f"{share}%", "; ".join(troubles[:SAID]), "vtorque-cache list, vtorque-cache verify"
        )
    return Finding("cache", cell=f"{share}%" if copies else "-")


def check_disk(settings: NodeSettings) -> Finding:
    """Check that there is room for the largest image, and that it can be written."""
    causes.check_disk(settings)
    disk = shutil.disk_usage(settings.state_dir)
    share = round(100 * (disk.total - disk.free) / disk.total) if disk.total else 0
    problem = f"{disk.free >> 30}G left under {settings.state_dir}" if share >= NEARLY_FULL else ""
    return Finding("disk", WARN if problem else OK, f"{share}%", problem)


def check_programs(settings: NodeSettings) -> Finding:
    """Check that the programs are there that guests are made with."""
    causes.check_programs(settings)
    return Finding("programs")


def check_devices(settings: NodeSettings) -> Finding:
    """Check that guests can have the host's devices which the site lists, and share memory where it allows that."""
    if settings.shares_regions and (problem := shared_region.find_problem()):
        return Finding("devices", BAD, BAD, f"unclot: {problem}", shared_region.REMEDY)
    if problem := host_devices.find_rdma_problem(settings):
        return Finding("devices", BAD, BAD, f"vrdma: {problem}", host_devices.rdma_remedy(settings))
    found = host_devices.examine(settings)
    if not found:
        return Finding("devices", NONE, "-")
    usable = sum(one.is_usable for one in found)
    quarantined = [f"{one.address} is in quarantine: {one.quarantined}" for one in found if one.quarantined]
    faults = [f"{one.address}: {fault.why}" for one in found for fault in one.faults]
    cell = f"{usable}/{len(found)}"
    if problems := [*quarantined, *faults]:
        state = BAD if quarantined or not usable else WARN
        remedy = "vmgr node devices says more; vmgr node release ends a quarantine"
        return Finding("devices", state, cell, "; ".join(problems[:SAID]), remedy)
    return Finding("devices", cell=cell)


def check_pages(settings: NodeSettings) -> Finding:
    """Check that what this node has set apart as huge pages is no hindrance to guests of ordinary memory, nor missing.

    Guests get them by memfd: no mount of hugetlbfs is needed.
    """
    pools = hugepages.read_pools()
    if not pools:
        return Finding("pages", NONE, "-")
    total_mib, free_mib = (
        sum(count * kib // 1024 for (_cell, kib), count in counts.items())
        for counts in (
            {pool: one.total for pool, one in pools.items()},
            {pool: one.free for pool, one in pools.items()},
        )
    )
    amount = f"{free_mib}/{total_mib} MiB" if total_mib else "-"
    each = ", ".join(
        f"cell {cell}: {one.free} of {one.total} pages of {page_name(kib)} are free"
        for (cell, kib), one in sorted(pools.items())
        if one.total
    )
    ordinary_mib = memory.node_mib() - settings.host_ram_mib - total_mib
    if ordinary_mib <= 0:
        problem = f"{total_mib} MiB in huge pages leave no ordinary memory for guests: {each}"
        return Finding("pages", WARN, amount, problem, "set fewer apart, or let all jobs here ask for hugepages")
    if not total_mib and not settings.pages_raise:
        problem = "no huge pages are set apart, and hugepages_raise is false: jobs with hugepages=2M or 1G fail here"
        return Finding("pages", WARN, amount, problem, "set some apart at boot, or hugepages_raise: true")
    if len({cell for (cell, _kib), one in pools.items() if one.total}) < len({cell for cell, _kib in pools}):
        return Finding("pages", WARN if total_mib else OK, amount, each and f"some cells have none: {each}")
    return Finding("pages", cell=amount)


def check_sharing(settings: NodeSettings) -> Finding:
    """Check that this node can hand its guests what they mount, and knows whom they mount from."""
    kinds = [mount.kind for mount in settings.mounts]
    servers = {mount.source.partition(":")[0] for mount in settings.mounts if mount.kind == "nfs"}
    if settings.home_via == "virtiofs" or "virtiofs" in kinds:
        virtiofsd.program(settings)
    elif settings.home_export:
        servers.add(settings.home_export.partition(":")[0])
    for server in sorted(servers):
        try:
            socket.getaddrinfo(server.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            problem = f"NFS server {server}: {error.strerror or error}"
            return Finding("sharing", BAD, BAD, problem, "see /etc/hosts, or vm_nfs_home and mounts in vtorque.yml")
    if settings.confine_guests:
        reachable.reach(settings, "", sorted(servers), Deadline.after(SERVER_NAMES_S))
    return Finding("sharing", cell=settings.home_via if servers or settings.home_via == "virtiofs" else "-")


def check_bare(settings: NodeSettings) -> Finding:
    """Check that this node could stay bare in a job of `vsub -vm nodes=K`.  A site that has none loses nothing."""
    try:
        sshd.check_sshd(ANYBODY, settings, "", Deadline.after(SSHD_S))
    except (SiteFault, NodeFault) as error:
        return Finding("bare", WARN, "no", f"mixed requests fail here: {error.what}: {error.why}", error.hint)
    return Finding("bare")


def check_leftovers(settings: NodeSettings, is_alive: sweep.IsAlive, has_files: sweep.HasFiles) -> Finding:
    """Look for what is here of jobs that are gone.  The sweep would find and say the same; nothing is taken away.

    Args:
        settings: where to look.
        is_alive: the batch server's word on a start.
        has_files: the MOM's word on a job.
    """
    left = sweep.inspect_starts(settings, is_alive, has_files, Deadline.after(LEFT_S))
    if left:
        problem = "; ".join(f"{item.key}: {item.why}" if item.key else item.why for item in left[:SAID])
        return Finding("left", WARN, str(len(left)), problem, "vtorque-sweep takes away what it finds over twice")
    return Finding("left")


def check_clock(_settings: NodeSettings, ask: t.Callable[[], int] | None = None) -> Finding:
    """Check that somebody keeps this node's clock.  Whether it is right only others can tell.

    Args:
        ask: gives the kernel's word (adjtimex(2)).
    """
    if (ask or _read_kernel_clock)() == _TIME_ERROR:
        problem = "the kernel reports that no program synchronises this clock"
        return Finding("time", WARN, OK, problem, "start chrony, ntpd or systemd-timesyncd")
    return Finding("time")


def _read_kernel_clock() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.adjtimex(ctypes.create_string_buffer(512)))  # mode 0: nothing is set; 208 bytes on Linux


def check_sweep(settings: NodeSettings, systemd: pathlib.Path = SYSTEMD, systemctl: str = SYSTEMCTL) -> Finding:
    """Check that somebody takes away what lost jobs leave.

    Args:
        settings: says where the last sweep left its mark.
        systemd: is there where systemd runs.
        systemctl: its command.
    """
    if systemd.exists() and not _is_active(systemctl, TIMER):
        return Finding("sweep", BAD, "off", f"{TIMER} does not run", f"systemctl enable --now {TIMER}")
    try:
        age_s = time.time() - (settings.run_dir / SWEPT).stat().st_mtime
    except FileNotFoundError:
        if time.clock_gettime(time.CLOCK_BOOTTIME) < SWEEP_LATE_S:
            return Finding("sweep", cell="new")
        return Finding("sweep", BAD, "never", "vtorque-sweep has not run since the boot", f"systemctl status {TIMER}")
    if age_s > SWEEP_LATE_S:
        problem = f"vtorque-sweep ran last {age_s / 60:.0f} minutes ago"
        return Finding("sweep", BAD, "late", problem, f"run it, and see systemctl status {TIMER}")
    return _last_sweep(settings.run_dir / SWEPT)


def _last_sweep(path: pathlib.Path) -> Finding:
    """What the last sweep could not take away; of an earlier version it left no word."""
    left = [line for line in path.read_text(encoding="utf-8", errors="replace")[:2000].splitlines() if line.strip()]
    if not left:
        return Finding("sweep")
    return Finding("sweep", WARN, "left", f"the last one left: {'; '.join(left)}", "vtorque-sweep says more")


def check_spool(settings: NodeSettings) -> Finding:
    """Check that the front end gets the records of jobs.

    The node does its work without, and no record is lost by waiting.
    """
    marks = delivery_queue.list_pending(settings.state_dir)
    age_s = time.time() - marks[0].since if marks else 0.0
    if age_s < SPOOL_LATE_S:
        return Finding("spool", cell=str(len(marks)))
    why = next((mark.why for mark in marks if mark.why), "vtorque-sweep has not tried it yet")
    problem = f"{len(marks)} records wait for the front end, the oldest for {age_s / 3600:.0f} hours: {why}"
    remedy = "record_host must be reached by root's ssh from here, and have room; vtorque-sweep then hands them over"
    return Finding("spool", WARN, str(len(marks)), problem, remedy)


def _is_active(systemctl: str, unit: str) -> bool:
    try:
        call = [systemctl, "is-active", "--quiet", unit]
        return subprocess.run(call, timeout=TIMER_S, stdin=subprocess.DEVNULL, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def note_sweep(settings: NodeSettings, left: t.Sequence[str] = ()) -> None:
    """Leave the mark of a sweep; that it cannot be left stops nothing.

    Args:
        settings: says where.
        left: what it could not take away, in words.
    """
    try:
        path = settings.run_dir / SWEPT
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            stream.writelines(f"{printable(' '.join(word.split()))[:200]}\n" for word in left[:SAID])
            os.utime(fd)
    except OSError:
        return
