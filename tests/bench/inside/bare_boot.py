# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: boot guests by libvirt alone, made by our own rooms as a job's guests would be.

bare_boot IMAGE RAM_MIB USER COUNT [HOLD]     says {"seconds": from the call that creates the first until all are ready}

With HOLD true it says {"names"} first, and leaves the guests alone until the end of its input.

Ready means what it means for a job: each guest's line on its console, and its own host key answering at its address.
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import pathlib
import platform
import shutil
import sys
import time
import typing as t
import uuid

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.owner import owner_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.ssh_keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.connection import Domains
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import DomainSpec, render_xml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.console import Console
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.readiness import AwaitedGuest, wait_ready
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.ssh_probe import (
    SshProbe,
    write_known_hosts,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import addresses
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal.leftovers import end_processes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import seed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import overlay, shares, virtiofsd
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage.serving import Serving
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline, Timings
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import host_name, settings_of

JOB, START = "0.bench", 1
TOKEN = "bench" + "0" * 8
DEADLINE_S = 600.0


def prepare(
    settings: NodeSettings, slot: int, image_name: str, ram_mib: int, user: str, hypervisor: str, qemu: tuple[int, int]
) -> tuple[str, AwaitedGuest]:
    """Everything but the domain: its XML, and what is waited for.

    The slots are those of a job's guests on a node that has no others: name, MAC and so the DHCP lease are the same.
    """
    directory = settings.start_dir(JOB, START) / settings.guest_name(slot)
    image = images.find(image_name, settings.pool)
    files.make_directory(directory)
    settings.agents_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    overlay.make_overlay(image, directory / "disk.qcow2", Deadline.after(60))
    boot = {kind: getattr(image.boot, kind) for kind in ("kernel", "initrd")}
    copies: dict[str, t.Any] = {
        kind: pathlib.Path(shutil.copyfile(path, directory / kind)) for kind, path in boot.items() if path
    }
    owner, name, guest_id = owner_of(user), settings.guest_name(slot), str(uuid.uuid4())
    write_guest_file(directory, GuestFile(slot - 1, slot, name, settings.mac(slot), guest_id, TOKEN, owner.uid, ""))
    host_key = make_key("bench")
    shared = shares.plan_mounts(settings, owner)
    serving = Serving(directory, owner, settings, qemu, Deadline.after(60))
    homes = tuple(
        (one.tag, virtiofsd.start(one.tag, one.directory, serving)) for one in shared.shares if one.kind == "virtiofs"
    )
    report = seed.Seed(
        name=name, instance_id=guest_id, mac=settings.mac(slot), distro=image.distro or "debian", job_id=JOB,
        token=TOKEN, node_address=addresses.node_address(settings.bridge, Deadline.after(60)),
        torque_home=str(settings.torque_home),
        owner=owner, host_key=host_key, authorized_key=make_key("bench").public,
        mounts=shared.mounts, mount_s=settings.mount_s,
    )  # fmt: skip
    seed.write_iso(seed.render(report, settings.template_dir), directory / "seed.iso")
    write_known_hosts(directory / "known_hosts", host_key.public)
    (directory / "console.log").touch(mode=0o600)
    xml = render_xml(
        DomainSpec(
            name=name, uuid=report.instance_id, job_id=JOB, start=START, owner=owner.user, rank=slot - 1,
            node=settings.node_name, hypervisor=hypervisor, arch=platform.machine(), ram_mib=ram_mib, vcpus=1,
            disk=directory / "disk.qcow2", image=image.path, image_format=image.format, seed=directory / "seed.iso",
            console=directory / "console.log",
            agent=settings.agent_socket(slot), bridge=settings.bridge, tap=settings.tap_name(slot),
            mac=settings.mac(slot), boot_mode=image.boot.mode, cmdline=image.boot.cmdline,
            nvram=directory / "nvram.fd", network_filter=settings.network_filter, virtiofs=homes, **copies,
        ),
        site_dir=settings.template_dir,
    )  # fmt: skip
    console = Console(directory / "console.log", TOKEN)
    ask = functools.partial(SshProbe, settings.ssh, directory / "known_hosts")
    return xml, AwaitedGuest(name, settings.mac(slot), ask, console, Timings())


def boot(settings: NodeSettings, domains: Domains, guests: list[tuple[str, AwaitedGuest]]) -> float:
    """Seconds from the first call that creates one until all are ready."""
    macs = {awaited.mac for _xml, awaited in guests}
    addresses.flush(macs, settings.bridge, Deadline.after(60))
    with (
        addresses.Neighbours(macs, bridge=settings.bridge, leases=settings.leases_files) as candidates,
        concurrent.futures.ThreadPoolExecutor(len(guests)) as at_once,
    ):
        begin = time.monotonic()
        list(at_once.map(domains.create, [xml for xml, _awaited in guests]))
        wait_ready([awaited for _xml, awaited in guests], domains, candidates, Deadline.after(DEADLINE_S))
        return time.monotonic() - begin


def main() -> None:
    """Boot once, and leave nothing."""
    image_name, ram_mib, user, count, *hold = map(json.loads, sys.argv[1:])
    policy = policy_file.load()
    settings = settings_of(policy, host_name())
    slots = range(1, count + 1)
    with Domains(settings.libvirt_uri) as domains:
        domains.listen()
        try:
            hypervisor = str(policy.hypervisor_default)
            qemu = domains.capabilities().qemu_ids
            guests = [prepare(settings, slot, image_name, ram_mib, user, hypervisor, qemu) for slot in slots]
            seconds = boot(settings, domains, guests)
            if any(hold):
                print(json.dumps({"names": [settings.guest_name(slot) for slot in slots]}), flush=True)
                sys.stdin.read()
        finally:
            for slot in slots:
                domains.destroy(settings.guest_name(slot))
            end_processes(settings, layout.job_key(JOB, START))
            shutil.rmtree(settings.start_dir(JOB, START), ignore_errors=True)
    print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
