# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a node: guests of one template at the same time, by the product's own restore and first order, of no job.

  warm_clones.py IMAGE COUNT    COUNT guests of the template of IMAGE's guests, until each has printed what it found

What it prints is JSON: the lines `tiny guest: NAME VALUE` of each guest's console, by their names.  None of its waits
has an end of its own, since no guest of these is late.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import json
import pathlib
import re
import shutil
import sys
import time
import uuid

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import wait_for_copy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.connection import Domains
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import DomainSpec, render_xml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import first_order
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import clone_xml, making, start, template
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import read_configuration
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.warm_size import shape_of

PLACE = pathlib.Path("/var/lib/vtorque/warm-clones")
CALLS = 4
"""To libvirt at the same time, as a start of a job has them."""
LONG_S = 3600.0
FOUND = re.compile(r"^tiny guest: (random|temporary|sequence) (\S+)\r?\n", re.MULTILINE)


def spec_of(number: int, shape: DomainSpec) -> DomainSpec:
    """Return a guest of the template's shape, whose network leads nowhere."""
    place = PLACE / str(number)
    return dataclasses.replace(
        shape,
        name=f"{clone_xml.NAME}-clone-{number}",
        uuid=str(uuid.uuid4()),
        disk=place / template.DISK,
        seed=place / template.SEED,
        console=place / "console.log",
        agent=place / "agent",
        kernel=shape.kernel and place / "vmlinuz",
        initrd=shape.initrd and place / "initrd",
        mac=f"52:54:00:00:01:{number:02x}",
        tap=f"vtqclone{number}",
    )


def make_clone(
    number: int, made: template.Template, wanted: making.TemplateSpec, settings: NodeSettings, domains: Domains
) -> None:
    """Have one guest run, until it has obeyed its first order."""
    spec = spec_of(number, wanted.spec)
    place = spec.console.parent
    place.mkdir(mode=0o711)
    place.chmod(0o711)
    spec.console.touch(mode=0o600)
    start.copy_disks(made, place)
    images.copy_boot(wanted.image, place)
    xml = render_xml(spec, site_dir=settings.template_dir, compiled=settings.compiled_dir)
    xml = clone_xml.of_template(xml, clone_xml.count_ports(settings))
    identity = first_order.Identity(f"clone-{number}", spec.mac, uuid.uuid4().hex, str(uuid.uuid4()), spec.uuid)
    order = functools.partial(first_order.format_first_order, identity, (), {})
    start.start(made, start.Clone(spec.name, place, xml, spec.agent, order), domains, Deadline.after(LONG_S))


def await_lines(number: int) -> dict[str, str]:
    """Return what a guest has printed, when it is all there."""
    console = PLACE / str(number) / "console.log"
    while len(found := dict(FOUND.findall(console.read_text(errors="replace")))) < 3:
        time.sleep(0.1)
    return found


def main(name: str, count: int) -> list[dict[str, str]]:
    """Have the guests, and take them away."""
    start.FIRST_ORDER_S = LONG_S  # a busy machine is no fault of a guest's
    policy, settings = read_configuration()
    image = images.find(name, settings.pool)
    shape = shape_of(image, {}, policy)
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o711)
    PLACE.chmod(0o711)
    with wait_for_copy.base_of(image, shape.fs_type, settings) as base, Domains(settings.libvirt_uri) as domains:
        wanted = making.TemplateSpec(clone_xml.spec_of(base, shape.size, settings), base)
        made = template.find(making.key_of(wanted, settings, domains), settings)
        work = functools.partial(make_clone, made=made, wanted=wanted, settings=settings, domains=domains)
        try:
            with concurrent.futures.ThreadPoolExecutor(CALLS) as pool:
                list(pool.map(work, range(count)))
            return [await_lines(number) for number in range(count)]
        finally:
            for number in range(count):
                domains.destroy(f"{clone_xml.NAME}-clone-{number}")
            shutil.rmtree(PLACE)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
