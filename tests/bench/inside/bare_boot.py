# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: boot a guest by libvirt alone, made by our own rooms as a job's guest would be.

bare_boot IMAGE RAM_MIB USER     says {"seconds": from the call that creates it until its own ready line}
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import platform
import select
import shutil
import sys
import time
import uuid

from ansible_collections.mikelangelo.vtorque.plugins.module_utils import records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job import policy as site_policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan import owner_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import images, neighbours, seed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.console import Console
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain import Domains, DomainSpec, render_xml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.records import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vtorque_node import host_name, settings_of

JOB, START, SLOT = "0.bench", 1, 1
"""The slot of a job's guest on a node that has no other: name, MAC and so the DHCP lease are the same."""
TOKEN = "bench" + "0" * 8
DEADLINE_S = 600.0


def prepare(
    settings: NodeSettings, directory: pathlib.Path, image_name: str, ram_mib: int, user: str, hypervisor: str
) -> str:
    """Everything but the domain; returns its XML."""
    image = images.find(image_name, settings.pool)
    records.make_directory(directory)
    images.make_overlay(image, directory / "disk.qcow2", Deadline.after(60))
    boot = {kind: getattr(image.boot, kind) for kind in ("kernel", "initrd")}
    copies = {kind: pathlib.Path(shutil.copyfile(path, directory / kind)) for kind, path in boot.items() if path}
    owner, name = owner_of(user), settings.guest_name(SLOT)
    told = seed.Seed(
        name=name, instance_id=str(uuid.uuid4()), mac=settings.mac(SLOT), distro=image.distro or "debian", job_id=JOB,
        token=TOKEN, node_address=neighbours.node_address(settings.bridge), torque_home=str(settings.torque_home),
        owner=owner, host_key=make_key("bench"), authorized_key=make_key("bench").public, node_file=(name,),
    )  # fmt: skip
    seed.write_iso(seed.render(told, settings.template_dir), directory / "seed.iso")
    (directory / "console.log").touch(mode=0o600)
    return render_xml(
        DomainSpec(
            name=name, uuid=told.instance_id, job_id=JOB, start=START, owner=owner.user, rank=0,
            node=settings.node_name, hypervisor=hypervisor, arch=platform.machine(), ram_mib=ram_mib, vcpus=1,
            disk=directory / "disk.qcow2", image=image.path, image_format=image.format, seed=directory / "seed.iso",
            console=directory / "console.log", bridge=settings.bridge, tap=settings.tap_name(SLOT),
            mac=settings.mac(SLOT), boot_mode=image.boot.mode, cmdline=image.boot.cmdline,
            nvram=directory / "nvram.fd", network_filter=settings.network_filter, **copies,
        ),
        site_dir=settings.template_dir,
    )  # fmt: skip


def wait_line(console: Console, domains: Domains) -> None:
    """Until the guest's ready line, by event."""
    import inotify_simple

    deadline = Deadline.after(DEADLINE_S)
    with contextlib.closing(inotify_simple.INotify(nonblocking=True)) as watcher:
        watcher.add_watch(str(console.path.parent), inotify_simple.flags.MODIFY | inotify_simple.flags.CREATE)
        poll = select.poll()
        for fileno in (watcher.fileno(), domains.fileno()):
            poll.register(fileno, select.POLLIN)
        console.read()
        while console.ready_address is None:
            over = [event for event in domains.events() if event.kind in ("stopped", "crashed", "suspended", "lost")]
            if over or console.failed or console.panic or deadline.passed:
                raise SystemExit(f"the bare guest did not boot: {over} {console.last_words()}")
            poll.poll(deadline.left_s() * 1000)
            watcher.read(timeout=0)
            console.read()


def main() -> None:
    """Boot once, and leave nothing."""
    image_name, ram_mib, user = map(json.loads, sys.argv[1:])
    policy = site_policy.load()
    settings = settings_of(policy, host_name())
    directory = settings.start_dir(JOB, START) / settings.guest_name(SLOT)
    with Domains(settings.libvirt_uri) as domains:
        domains.listen()
        try:
            xml = prepare(settings, directory, image_name, ram_mib, user, str(policy.hypervisor_default))
            begin = time.monotonic()
            domains.create(xml)
            wait_line(Console(directory / "console.log", TOKEN), domains)
            seconds = time.monotonic() - begin
        finally:
            domains.destroy(settings.guest_name(SLOT))
            shutil.rmtree(directory.parent, ignore_errors=True)
    print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
