# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Booting an image once to see whether jobs can run in it: on this host, in a guest of no job and on no network.

The copy in the pool is booted before it appears, so that what is tried is what is published.  libvirt ends the guest
with our connection.  Its network card leads nowhere (SLIRP with restrict): without a card, images wait minutes for one.
A host that cannot boot the image says nothing about it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import secrets
import select
import shutil
import tempfile
import time
import typing as t

from ...errors import ImageFault, NodeFault, VTorqueError
from ...rendering.templates import render
from ...state.layout import STATE_DIR
from ...system.clock import Deadline
from ..domain.capabilities import kvm_usable
from ..domain.connection import Domains
from ..pool.disk_check import QEMU_IMG, run_qemu_img
from ..pool.images import Boot, Image
from ..seed.seed import write_iso
from .report import TrialConsole, TrialObservations

PLACE = "trial."
"""What the names of places begin with."""
RAM_MIB = 2048
MAC = "52:54:00:00:00:01"
LOOK_S = 0.25
"""Between two looks at the console: libvirt's events are heard at once."""
PREPARE_S = 60.0
_OVER = {"stopped", "crashed", "undefined", "lost"}
_NO_NETWORK = ("netdev", "network backend")
"""In what qemu says that was built without SLIRP, as Enterprise Linux has it."""


class NotTried(VTorqueError):
    """This host cannot boot the image, which says nothing of the image."""


@dataclasses.dataclass(frozen=True, slots=True)
class TrialDomain:
    """What the template of such a guest's domain may use.

    Attributes:
        place: the directory of all its files.
        network: whether it has a network card.
    """

    name: str
    hypervisor: str
    arch: str
    place: pathlib.Path
    image: pathlib.Path
    image_format: str
    boot: Boot
    network: bool
    ram_mib: int = RAM_MIB
    mac: str = MAC

    @property
    def machine(self) -> str:
        """As guests of jobs have it."""
        return "q35" if self.arch == "x86_64" else "virt"


class _TrialStart(t.NamedTuple):
    token: str
    emulated: str
    spec: TrialDomain


def boot(
    image: Image,
    uri: str,
    deadline: Deadline,
    *,
    allow_emulation: bool,
    tell: t.Callable[[str], None],
    places: pathlib.Path = STATE_DIR,
) -> TrialObservations:
    """Boot an image once; neither it nor anything else on this host is changed.

    Args:
        image: what qemu may read; its guest writes into an overlay.
        uri: where libvirt listens.
        deadline: of the whole.
        allow_emulation: where there is no KVM.
        tell: told how far the guest is.
        places: where a directory of its files lies while it runs.

    Returns:
        What was seen until it had told everything, ended, or its time was over.

    Raises:
        NotTried: this host cannot boot it.
    """
    began = time.monotonic()
    with _trying(), Domains(uri) as domains, _place(places) as place:
        asked = _prepare(image, domains, place, deadline, allow_emulation=allow_emulation)
        domains.listen()
        console = TrialConsole(place / "console.log", asked.token)
        try:
            network = _start(domains, asked.spec)
            began = time.monotonic()
            seen = _watch(domains, asked, console, began, deadline, tell)
        finally:
            console.close()
            domains.destroy(asked.spec.name)
    return dataclasses.replace(seen, emulated=asked.emulated, network=network)


@contextlib.contextmanager
def _trying() -> t.Iterator[None]:
    """What fails here is this host's, not the image's."""
    try:
        yield
    except NotTried:
        raise
    except VTorqueError as error:
        why = f"{error.what}: {error.why}" if error.why else error.what
        raise NotTried("the image was not booted", why, error.hint) from error
    except OSError as error:
        raise NotTried("the image was not booted", str(error)) from error


@contextlib.contextmanager
def _place(places: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """A directory for the guest's files, gone afterwards; what was left by who was killed goes first."""
    places.mkdir(mode=0o711, parents=True, exist_ok=True)
    gate = os.open(places, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        for left in places.glob(f"{PLACE}*"):
            with contextlib.suppress(OSError), _lock_place(left):
                shutil.rmtree(left)
        place = pathlib.Path(tempfile.mkdtemp(dir=places, prefix=PLACE))
        place.chmod(0o711)
        holder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(holder, fcntl.LOCK_EX)
    finally:
        os.close(gate)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(holder)


@contextlib.contextmanager
def _lock_place(place: pathlib.Path) -> t.Iterator[None]:
    """Hold a place that nobody holds; OSError: somebody does."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def _prepare(
    image: Image, domains: Domains, place: pathlib.Path, deadline: Deadline, *, allow_emulation: bool
) -> _TrialStart:
    offered = domains.capabilities()
    arch = image.arch or "x86_64"
    emulated = kvm_usable(arch, offered)
    if emulated and not allow_emulation:
        raise NotTried("the image was not booted", f"no KVM here: {emulated}", "a compute node may have it")
    if emulated and "qemu" not in offered.domains.get(arch, ()):
        raise NotTried("the image was not booted", f"libvirt offers no guests of {arch} here")
    token = secrets.token_hex(8)
    disk = place / "disk.qcow2"
    disk.touch(mode=0o600)
    argv: list[str | pathlib.Path] = [QEMU_IMG, "create", "-q", "-f", "qcow2", "-b", image.path, "-F", image.format]
    run_qemu_img([*argv, disk], Deadline.after(deadline.left_s(PREPARE_S)), ImageFault)
    # libvirt gives a kernel to qemu's user, and these are the pool's
    for name, path in (("vmlinuz", image.boot.kernel), ("initrd", image.boot.initrd)):
        if path:
            shutil.copyfile(path, place / name)
    write_iso(_seed(token), place / "seed.iso")
    (place / "console.log").touch(mode=0o600)
    spec = TrialDomain(
        name=f"vtorque-trial-{token}",
        hypervisor="qemu" if emulated else "kvm",
        arch=arch,
        place=place,
        image=image.path,
        image_format=image.format,
        boot=image.boot,
        network=True,
    )
    return _TrialStart(token, emulated, spec)


def _seed(token: str) -> dict[str, str]:
    """What the guest is told; the site's templates are for jobs."""
    network = f"version: 2\nethernets:\n  eth0: {{match: {{macaddress: '{MAC}'}}, dhcp4: true}}\n"
    return {
        "meta-data": f"instance-id: trial-{token}\nlocal-hostname: vtorque-trial\n",
        "user-data": render("trial/user-data.j2", site_dir=None, token=token),
        "network-config": network,
    }


def _start(domains: Domains, spec: TrialDomain) -> bool:
    """Start it, with a network card where qemu can have one of that kind; says whether it has."""
    try:
        domains.create(_xml(spec), autodestroy=True)
    except NodeFault:
        raise
    except VTorqueError as error:
        if not any(word in error.why for word in _NO_NETWORK):
            raise
        domains.create(_xml(dataclasses.replace(spec, network=False)), autodestroy=True)
        return False
    return True


def _xml(spec: TrialDomain) -> str:
    return render("trial/domain.xml.j2", site_dir=None, spec=spec)


def _watch(
    domains: Domains,
    asked: _TrialStart,
    console: TrialConsole,
    began: float,
    deadline: Deadline,
    tell: t.Callable[[str], None],
) -> TrialObservations:
    """Until it has told everything, ended, or its time is over."""
    poll = select.poll()
    poll.register(domains.fileno(), select.POLLIN)
    up_s: float | None = None
    ended = ""
    while True:
        console.read()
        now_s = time.monotonic() - began
        if up_s is None and any(line.startswith("up ") for line in console.lines):
            up_s = now_s
        if "end" in console.lines or console.panic or console.nothing_to_boot or ended or deadline.passed:
            break
        tell(f"booting for {now_s:.0f} s: {_far(console)}")
        poll.poll(deadline.left_s(LOOK_S) * 1000)
        ended = _ended(domains, asked.spec.name)
    return TrialObservations(
        now_s if up_s is None else up_s,
        ended,
        tuple(console.lines),
        console.stage,
        console.last_output(),
        console.nothing_to_boot,
        console.panic or "",
        console.login,
    )


def _far(console: TrialConsole) -> str:
    if any(line.startswith("up ") for line in console.lines):
        return "it is up, and tells what took its time"
    if console.lines:
        return "cloud-init has begun"
    return console.stage or "nothing of a system yet"


def _ended(domains: Domains, name: str) -> str:
    """Why the guest is over, or "": it is not."""
    for event in domains.events():
        if event.kind == "lost":
            raise NodeFault("libvirt", f"was lost while the image booted: {event.reason}", cause="libvirt")
        if event.name == name and event.kind == "suspended":
            raise NotTried("the image was not booted", f"its guest was paused: {event.reason or 'no reason is known'}")
        if event.name == name and event.kind in _OVER:
            return event.reason or event.kind
    return ""
