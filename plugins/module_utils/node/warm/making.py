# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template is made: a guest of nobody boots, is saved, and one guest that is made from it obeys its first order.

It has no user, no key and no network.  One is made at a time on a node, at the lowest priority.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import secrets
import select
import shutil
import time
import typing as t

from ...errors import GuestFault, NodeFault, SiteFault
from ...rendering.templates import render
from ...system import files
from ...system.clock import Deadline
from ...time_budget import FIRST_ORDER_S, OVERLAY_S
from ..cache import disk_space
from ..domain.connection import Domains
from ..domain.domain_xml import DomainSpec, render_xml
from ..guest import agent, first_order
from ..guest.console import Console
from ..pool import images
from ..seed import seed
from ..state import start_lock
from ..state.settings import NodeSettings
from ..storage import overlay
from . import clone_xml, key, template, tidying
from .save_header import read_header
from .start import Clone, copy_disks, start

PID_FILES = pathlib.Path("/run/libvirt/qemu")
LOWEST = 19
LOOK_S = 0.25
SETTLE_S = 1.0
"""For which a guest that says that it can be saved is left alone."""
MOST_DISK = 256 << 20
"""Bytes of what a template's guest may have written."""
_MIB = 1 << 20
_OVER = {"stopped", "crashed", "undefined", "lost", "shutdown"}

Tell = t.Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateSpec:
    """The template that is to be made.

    Attributes:
        spec: of its guests (`clone_xml.shape_of`).
        image: as their disks stand on it; held until this is over.
    """

    spec: DomainSpec
    image: images.Image


class _TemplateConsole(Console):
    """The console of a guest that is to be saved."""

    def __init__(self, path: pathlib.Path, token: str) -> None:
        super().__init__(path, token)
        self._mark = f"vtorque-warm {token}"
        self.settled = False

    def _line(self, line: str) -> None:
        self.settled = self.settled or line == self._mark
        super()._line(line)


def key_of(wanted: TemplateSpec, settings: NodeSettings, domains: Domains) -> str:
    """Return the key of the shape on this node, see `key.key_of`.

    Raises:
        NodeFault: libvirt does not answer.
        SiteFault: the template of the domain's XML is wrong.
    """
    xml = render_xml(wanted.spec, site_dir=settings.template_dir, compiled=settings.compiled_dir)
    xml = clone_xml.of_template(xml, clone_xml.count_ports(settings))
    return key.key_of(key.facts_of_image(wanted.image), key.facts_of_node(domains), xml)


def make(
    wanted: TemplateSpec, settings: NodeSettings, domains: Domains, deadline: Deadline, tell: Tell = lambda _line: None
) -> template.Template:
    """Make a template, try it with one guest, and publish it.

    Args:
        wanted: the shape.
        settings: NodeSettings of this node.
        domains: libvirt; its events are heard from now on.
        deadline: when it must be there.
        tell: hears how far it is.

    Raises:
        SiteFault: the node has no room for it.
        VTorqueError: it was not made; says why.  Nothing is left then.
    """
    with start_lock.lock_alone(settings.run_dir / "locks" / tidying.LOCK, settings, deadline):
        tidying.end_lost(domains)
        template.tidy(settings)
        domains.listen()
        try:
            with template.workplace(settings) as place:
                return _make(wanted, settings, domains, place, deadline, tell)
        except OSError as error:
            raise NodeFault("the template was not made", str(error), cause="disk") from error
        finally:
            (settings.agents_dir / tidying.LOCK).unlink(missing_ok=True)


def _make(
    wanted: TemplateSpec,
    settings: NodeSettings,
    domains: Domains,
    place: pathlib.Path,
    deadline: Deadline,
    tell: Tell,
) -> template.Template:
    began = time.monotonic()
    token = secrets.token_hex(16)
    of_template = key_of(wanted, settings, domains)
    _make_room(wanted, settings)
    user_data = _furnish(wanted, settings, place, token)
    spec = _placed(wanted, settings, place, f"{clone_xml.NAME}-{token[:8]}")
    console = _TemplateConsole(place / "console.log", token)
    try:
        domains.create(_xml(spec, settings), autodestroy=True)
        _let_others_first(spec.name)
        _wait_savable(spec.name, console, domains, deadline, tell)
        agent.greet(agent.Channel(spec.name, spec.agent, token), Deadline.after(deadline.left_s(FIRST_ORDER_S)))
        time.sleep(deadline.left_s(SETTLE_S))
        tell("its memory is saved")
        domains.pause(spec.name, paused=True)
        domains.save(spec.name, place / template.MEMORY)
    finally:
        console.close()
        domains.destroy(spec.name)
    record = _record_of(wanted, place, of_template, token, user_data, time.monotonic() - began)
    tell("a guest is made from it")
    _try(template.Template(place, record), wanted, settings, domains, deadline)
    for left in ("vmlinuz", "initrd", "console.log"):
        (place / left).unlink(missing_ok=True)
    return template.publish(place, dataclasses.replace(record, seconds=time.monotonic() - began), settings)


def _make_room(wanted: TemplateSpec, settings: NodeSettings) -> None:
    """Make room for a template, which may take as much as its guest has; those that were not used longest give way."""
    with disk_space.counted(settings, Deadline.after(OVERLAY_S)) as taken:
        least = (wanted.spec.ram_mib * _MIB) + MOST_DISK + taken.promised_bytes
        template.make_room(settings, least_bytes=least)
        free = shutil.disk_usage(settings.warm_dir).free
        if free < least:
            raise SiteFault(
                "the template was not made",
                f"{least >> 20} MiB are needed under {settings.warm_dir}, with what guests were promised; "
                f"{free >> 20} MiB are free",
                "free some space",
            )


def _furnish(wanted: TemplateSpec, settings: NodeSettings, place: pathlib.Path, token: str) -> str:
    """Disk, seed and console; returns the seed's user data."""
    overlay.make_overlay(wanted.image, place / template.DISK, Deadline.after(OVERLAY_S), qemu_img=settings.qemu_img)
    images.copy_boot(wanted.image, place)
    user_data = render(
        "warm/user-data.j2",
        site_dir=settings.template_dir,
        compiled=settings.compiled_dir,
        token=token,
        programs=settings.guest_programs,
    )
    content = {
        "meta-data": f"instance-id: warm-{token}\nlocal-hostname: {clone_xml.NAME}\n",
        "user-data": user_data,
        "network-config": "version: 2\nethernets: {}\n",
    }
    seed.write_iso(content, place / template.SEED)
    (place / "console.log").touch(mode=0o600)
    files.make_directory(settings.agents_dir)
    return user_data


def _placed(wanted: TemplateSpec, settings: NodeSettings, place: pathlib.Path, name: str) -> DomainSpec:
    spec = wanted.spec
    return dataclasses.replace(
        spec,
        name=name,
        uuid=pathlib.Path("/proc/sys/kernel/random/uuid").read_text("ascii").strip(),
        disk=place / template.DISK,
        seed=place / template.SEED,
        console=place / "console.log",
        agent=settings.agents_dir / tidying.LOCK,
        kernel=spec.kernel and place / "vmlinuz",
        initrd=spec.initrd and place / "initrd",
    )


def _xml(spec: DomainSpec, settings: NodeSettings) -> str:
    text = render_xml(spec, site_dir=settings.template_dir, compiled=settings.compiled_dir)
    return clone_xml.of_template(text, clone_xml.count_ports(settings))


def _let_others_first(name: str) -> None:
    """Every job goes before it; new threads have what the ones that begin them have."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((PID_FILES / f"{name}.pid").read_text("ascii"))
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), LOWEST)


def _wait_savable(name: str, console: _TemplateConsole, domains: Domains, deadline: Deadline, tell: Tell) -> None:
    """Until the guest says that it can be saved.

    Raises:
        GuestFault: it ended, failed, or did not say so in time.
    """
    poll = select.poll()
    poll.register(domains.fileno(), select.POLLIN)
    began = time.monotonic()
    while not console.settled:
        why = next((event.reason or event.kind for event in domains.events() if _is_end(event, name)), "")
        console.read()
        why = console.failed or console.panic or why
        late = deadline.passed and not console.settled
        if why or late:
            what = "the guest of the template ended" if why else "the guest of the template was not settled in time"
            known = f"{why or console.describe()}; {console.describe_end() or 'its console is silent'}"
            raise GuestFault(what, known, symptom="ended" if why else "silent")
        tell(f"it boots for {time.monotonic() - began:.0f} s: {console.stage or 'nothing of a system yet'}")
        poll.poll(deadline.left_s(LOOK_S) * 1000)


def _is_end(event: t.Any, name: str) -> bool:
    return event.kind == "lost" or (event.name == name and event.kind in _OVER)


def _record_of(
    wanted: TemplateSpec, place: pathlib.Path, of_template: str, token: str, user_data: str, seconds: float
) -> template.Record:
    memory = place / template.MEMORY
    size = (place / template.DISK).stat().st_blocks * 512
    if size > MOST_DISK:
        raise SiteFault(
            "the template was not made",
            f"its guest wrote {size >> 20} MiB while it booted, more than {MOST_DISK >> 20} MiB",
            "make an image that does less at its first boot",
        )
    with memory.open("rb") as stream:
        read_header(stream)
    digests = {}
    for path in (memory, place / template.DISK):
        with path.open("rb") as stream:
            digests[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return template.Record(
        form=key.FORM,
        key=of_template,
        image=wanted.image.name,
        vcpus=wanted.spec.vcpus,
        ram_mib=wanted.spec.ram_mib,
        token=token,
        made=time.time(),
        seconds=seconds,
        memory_bytes=memory.stat().st_size,
        memory_sha256=digests[template.MEMORY],
        disk_sha256=digests[template.DISK],
        files={
            one.path: one.digest for one in first_order.files_of(user_data) if not re.search("/warm.env$", one.path)
        },
    )


def _try(
    made: template.Template, wanted: TemplateSpec, settings: NodeSettings, domains: Domains, deadline: Deadline
) -> None:
    """Make one guest from it, which is nobody's either.

    Raises:
        VTorqueError: it does not obey its first order.
    """
    place = made.place / "trial"
    place.mkdir(mode=0o711)
    place.chmod(0o711)
    spec = _placed(wanted, settings, place, f"{clone_xml.NAME}-{made.record.token[:8]}-trial")
    spec = dataclasses.replace(
        spec,
        mac="52:54:00:00:00:03",
        kernel=spec.kernel and made.place / "vmlinuz",
        initrd=spec.initrd and made.place / "initrd",
    )
    identity = first_order.Identity(
        clone_xml.NAME, spec.mac, secrets.token_hex(16), spec.uuid, f"trial-{made.record.token}"
    )
    try:
        copy_disks(made, place)
        spec.console.touch(mode=0o600)
        order = functools.partial(first_order.format_first_order, identity, (), {})
        start(made, Clone(spec.name, place, _xml(spec, settings), spec.agent, order), domains, deadline)
    finally:
        domains.destroy(spec.name)
        shutil.rmtree(place, ignore_errors=True)
        (made.place / template.USED).unlink(missing_ok=True)
