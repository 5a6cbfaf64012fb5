# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates that this node wants: left by starts that had none, worked off while no job has guests here.

<warm>/wanted/<image>:<vcpus>:<ram_mib>:<...>    a mark (`TemplateWant`); the oldest is worked off first
<warm>/failed/<the same>                         why it could not be; it may be wanted again a day later
<images>/wanted/warm:templates                   calls the cache's unit, which takes it away
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import re
import time
import typing as t

from ...errors import VTorqueError
from ...system import files
from ...system.clock import Deadline
from ...wire.messages import FS_TYPES, HYPERVISORS, IMAGE_NAME
from ..cache import copy_queue, standing_copies, wait_for_copy
from ..domain.connection import Domains
from ..pool import images
from ..state.directories import entries
from ..state.settings import NodeSettings
from . import clone_xml, making, template

REQUEST_MARK = "warm:templates"
AGAIN_S = 86_400.0
BOOT_S = 900.0
"""For a template, from its boot on."""
_NAME = re.compile(
    rf"({IMAGE_NAME}):([0-9]{{1,4}}):([0-9]{{1,8}}):({'|'.join(FS_TYPES)}):({'|'.join(HYPERVISORS)}):([a-z0-9_]{{1,16}})"
)

Log = t.Callable[[str], None]


class NotNow(VTorqueError):
    """A job has come, or an image is wanted: the template is made later."""


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateWant:
    """A template that is wanted.

    Attributes:
        image: with its revision.
        size: of its guests.
        fs_type: what their disks stand on.
    """

    image: str
    size: clone_xml.Size
    fs_type: str

    def __str__(self) -> str:
        size = self.size
        return f"{self.image}:{size.vcpus}:{size.ram_mib}:{self.fs_type}:{size.hypervisor}:{size.arch}"

    @classmethod
    def of(cls, name: str) -> TemplateWant | None:
        """Return what a mark says; None: it is none."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        image, _revision, vcpus, ram, fs_type, hypervisor, arch = found.groups()
        return cls(image, clone_xml.Size(int(vcpus), int(ram), hypervisor, arch), fs_type)


def want(settings: NodeSettings, what: TemplateWant) -> bool:
    """Leave a mark, unless it failed lately or there are enough; returns whether there is one.

    Args:
        settings: NodeSettings of this node.
        what: the template.
    """
    if TemplateWant.of(str(what)) is None:
        return False
    mark, failed = settings.warm_dir / "wanted" / str(what), settings.warm_dir / "failed" / str(what)
    with contextlib.suppress(OSError, VTorqueError):  # it is no reason to keep a job
        if failed.exists() and time.time() - failed.stat().st_mtime < AGAIN_S:
            return False
        if mark.exists() or len(entries(mark.parent)) >= settings.warm_max:
            return mark.exists()
        files.make_directory(mark.parent, mode=0o700)
        mark.touch(mode=0o600)
        return True
    return False


def wanted(settings: NodeSettings) -> tuple[TemplateWant, ...]:
    """Return what is wanted, the oldest mark first."""
    found = []
    for mark in entries(settings.warm_dir / "wanted"):
        what = TemplateWant.of(mark.name)
        with contextlib.suppress(FileNotFoundError):
            if what is not None:
                found.append((mark.stat().st_mtime_ns, str(what), what))
    return tuple(what for _when, _name, what in sorted(found))


def request_making(settings: NodeSettings) -> bool:
    """Have the cache's unit make what is wanted, if no job has guests here; returns whether it was called.

    Args:
        settings: NodeSettings of this node.

    Raises:
        VTorqueError: no mark can be left.
    """
    if not settings.warm_start or not wanted(settings) or entries(settings.guests_dir):
        return False
    with _alone(settings) as free:
        if not free:
            return False
    files.make_directory(copy_queue.marks_of(settings))
    (copy_queue.marks_of(settings) / REQUEST_MARK).touch(mode=0o600)
    copy_queue.ensure_worker(settings)
    return True


def work_off(settings: NodeSettings, log: Log) -> None:
    """Make what is wanted, one after the other, for as long as no job has guests here and no image is wanted.

    Args:
        settings: NodeSettings of this node.
        log: hears what was done.
    """
    (copy_queue.marks_of(settings) / REQUEST_MARK).unlink(missing_ok=True)
    if not settings.warm_start or not wanted(settings):
        return
    with _alone(settings) as free:
        if free:  # else somebody is at it
            _work_off(settings, log)


@contextlib.contextmanager
def _alone(settings: NodeSettings) -> t.Iterator[bool]:
    """Work alone; yields False where somebody does already.  The marks are there."""
    fd = os.open(settings.warm_dir / "wanted", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free
    finally:
        os.close(fd)


def _work_off(settings: NodeSettings, log: Log) -> None:
    def go_on(_line: str) -> None:
        if entries(settings.guests_dir) or copy_queue.wanted(settings):
            raise NotNow("the template is made later", "a job has come, or an image is wanted")

    for what in wanted(settings):
        try:
            go_on("")
            log(f"template {what}: {_make(settings, what, go_on)}")
        except NotNow as error:
            log(f"template {what}: {error}")
            return
        except (OSError, VTorqueError) as error:
            log(f"template {what}: {error}")
            with contextlib.suppress(OSError, VTorqueError):
                files.make_directory(settings.warm_dir / "failed", mode=0o700)
                files.write(settings.warm_dir / "failed" / str(what), f"{error}\n")
        (settings.warm_dir / "wanted" / str(what)).unlink(missing_ok=True)


def _make(settings: NodeSettings, what: TemplateWant, go_on: making.Tell) -> str:
    image = images.find(what.image, settings.pool)
    if not image.record.get("warm"):
        raise VTorqueError(f"image {image.name}", "does not say that it can be warm")
    deadline = Deadline.after(BOOT_S)
    if what.fs_type != "sharedfs":
        standing_copies.wait(image, what.fs_type, settings, deadline, go_on)
    with wait_for_copy.base_of(image, what.fs_type, settings) as base, Domains(settings.libvirt_uri) as domains:
        form = making.TemplateSpec(clone_xml.spec_of(base, what.size, settings), base)
        with contextlib.suppress(template.NoTemplate):
            template.find(making.key_of(form, settings, domains), settings)
            return "is there"
        made = making.make(form, settings, domains, deadline, go_on)
    return f"made in {made.record.seconds:.1f} s"
