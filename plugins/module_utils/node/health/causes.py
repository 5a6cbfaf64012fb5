# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of this node: each cause for which a node goes offline (`errors.CAUSES`), tested here and now."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import typing as t

from ...errors import NodeFault, VTorqueError
from ...system import files
from ...system.clock import Deadline
from ...system.process.environment import TOOL_ENVIRONMENT
from ...time_budget import ADDRESSES_ANSWER_S
from ..cache import disk_space
from ..devices import host_devices
from ..domain.capabilities import Capabilities, kvm_usable
from ..domain.connection import Domains
from ..network import addresses, cards, nft_rules
from ..pool import images
from ..state.settings import NodeSettings
from ..storage import virtiofsd

POOL_S = 10.0
"""Seconds for the image pool, which may be on a file server that hangs."""
PROGRAM_S = 10.0
LEAST_ROOM_BYTES = 64 << 20
"""What a guest needs beside its disk: seed, kernel, console."""


def troubles(settings: NodeSettings, cause: str = "") -> tuple[NodeFault, ...]:
    """What is wrong with this node now.

    Args:
        cause: test this alone; anything that is none of `errors.CAUSES`: test everything.

    Returns:
        One fault for each cause that did not test good; () when all is well.
    """
    checks: dict[str, t.Callable[[NodeSettings], object]] = {
        "libvirt": check_libvirt,
        "virtualisation": check_virtualisation,
        "bridge": check_bridge,
        "disk": check_disk,
        "programs": check_programs,
        "devices": check_devices,
    }
    found = []
    for name in [cause] if cause in checks else list(checks):
        try:
            checks[name](settings)
        except NodeFault as fault:
            found.append(fault)
        except (VTorqueError, OSError) as error:
            # it could not be tested, so it did not test good
            found.append(NodeFault(f"{name} of {settings.node_name}", str(error), cause=name))
    return tuple(found)


def check_libvirt(settings: NodeSettings) -> Capabilities:
    """What libvirt says that it can do.

    Raises:
        NodeFault: it does not answer.
    """
    with Domains(settings.libvirt_uri) as domains:
        return domains.capabilities()


def check_virtualisation(settings: NodeSettings, offered: Capabilities | None = None) -> None:
    """Check that this node can run the guests of a job that asks for nothing in particular.

    More is not expected of it: a user who asks for what this site's nodes were never meant to give proves nothing.

    Args:
        offered: what libvirt said; None: it is asked.

    Raises:
        NodeFault: it cannot.
    """
    missing = lack(settings.hypervisor_default, settings.arch_default, offered or check_libvirt(settings))
    if missing:
        hint = "switch it on in the firmware and load kvm, or install the emulator (qemu-system)"
        if settings.hypervisor_default != "qemu":
            hint += "; for a trial without KVM: hypervisor_default: qemu and allow_emulation: true"
        raise NodeFault(*missing, hint, cause="virtualisation")


def lack(hypervisor: str, arch: str, offered: Capabilities) -> tuple[str, str] | None:
    """What of guests of this kind a node cannot run, and why.

    Args:
        hypervisor: `qemu` is software emulation, everything else needs KVM.
        arch: of the guests.
        offered: what libvirt said.

    Returns:
        Both in words; None: it can run them.
    """
    if hypervisor == "qemu":
        able = "qemu" in offered.domains.get(arch, ())
        return None if able else (f"arch={arch}", "libvirt on this node cannot emulate it")
    why = kvm_usable(arch, offered)
    return (f"hypervisor={hypervisor}", f"this node has no usable virtualisation: {why}") if why else None


def check_bridge(settings: NodeSettings) -> str:
    """The node's own address on the guests' bridge, where all bridges of the site are.

    Raises:
        NodeFault: the bridge has no address; one, of a further network, too, is missing or is down.
    """
    address = addresses.node_address(settings.bridge, Deadline.after(ADDRESSES_ANSWER_S))
    if not addresses.is_up(settings.bridge):
        raise NodeFault(f"bridge {settings.bridge}", "is down", f"ip link set {settings.bridge} up", cause="bridge")
    cards.check_networks(settings.networks)
    return address


def check_disk(settings: NodeSettings) -> None:
    """Check that a guest's disk can be made here, of the largest image that could ever fit.

    A pool that cannot be read is no fault of the node's.

    Raises:
        NodeFault: nothing can be written, or there is no room.
    """
    place = settings.guests_dir
    try:
        files.make_directory(place)
        # beside the guests, where nobody takes it for one of theirs
        with tempfile.TemporaryFile(dir=place if place.is_mount() else settings.state_dir) as stream:
            stream.write(b"\0" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
        disk = shutil.disk_usage(place)
    except (VTorqueError, OSError) as error:
        raise NodeFault(
            f"the disk of {settings.state_dir} on {settings.node_name}",
            str(error),
            "free some space, or see to the disk",
            cause="disk",
        ) from error
    wanted = max([LEAST_ROOM_BYTES, *(size for size in _sizes(settings.pool) if size <= disk.total)])
    promised = disk_space.read_disk_use(place).promised_bytes
    if wanted + promised > disk.free:
        raise NodeFault(
            f"no room for a guest's disk under {settings.state_dir}",
            f"{wanted >> 20} MiB are needed; {disk.free >> 20} MiB are free, {promised >> 20} MiB of them promised",
            "free some space",
            cause="disk",
        )


def _sizes(pool: pathlib.Path) -> tuple[int, ...]:
    """Sizes in bytes of the images' disks; () when the pool does not say it in time."""
    found: list[int] = []

    def work() -> None:
        try:
            for _name, one in images.list_images(pool):
                if isinstance(one, images.Image):
                    found.append(one.virtual_bytes or (one.path.stat().st_size if one.format == "raw" else 0))
        except (VTorqueError, OSError):
            return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(POOL_S)
    return tuple(found)


def check_programs(settings: NodeSettings) -> None:
    """Check that the programs are there that guests are made with, and that they run.

    Raises:
        NodeFault: one is not, or does not.
    """
    if settings.home_via == "virtiofs" or any(mount.kind == "virtiofs" for mount in settings.mounts):
        virtiofsd.program(settings)
    if settings.confine_guests:
        nft_rules.check(settings)
    for program, option in (
        (settings.qemu_img, "--version"),
        (settings.ssh, "-V"),
        (settings.flock, "--version"),
        *([("bridge", "-V")] if any(network.private or network.tag for network in settings.networks) else []),
    ):
        try:
            done = subprocess.run(
                [str(program), option],
                timeout=PROGRAM_S,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                env=TOOL_ENVIRONMENT,
            )
            why = f"{option} ended with status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = f"{option} gave no answer within {PROGRAM_S:.0f} s"
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise NodeFault(f"{program} on {settings.node_name}", why, "install it again", cause="programs")


def check_devices(settings: NodeSettings) -> None:
    """Check that a job which gets host devices of this node can have them.

    One that the batch system counts may be given to the next job; of the others each class must have one.

    Raises:
        NodeFault: it could not.
    """
    if problem := host_devices.find_rdma_problem(settings):
        hint = host_devices.rdma_remedy(settings)
        raise NodeFault(f"vrdma on {settings.node_name}", problem, hint, cause="devices")
    if not settings.pci_classes:
        return
    broken = []
    found = host_devices.examine(settings)
    for pci_class in settings.pci_classes:
        mine = [one for one in found if one.address in pci_class.addresses]
        bad = [one for one in mine if one.quarantined or any(fault.owner == "node" for fault in one.faults)]
        if bad and (pci_class.resource or len(bad) == len(mine)):
            broken += [f"{one.address}: {one.quarantined or one.faults[0].why}" for one in bad]
    if broken:
        hint = "vmgr node devices says more"
        raise NodeFault(f"devices of {settings.node_name}", "; ".join(dict.fromkeys(broken)), hint, cause="devices")
