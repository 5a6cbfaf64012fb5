# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the seconds of an image's boot went: its phases on one scale, out of what a trial told (`trial/report.sh`)."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...errors import ImageFault
from ...rendering.bar_chart import Lasting
from .report import Cost, Report, TrialObservations

FIRMWARE, KERNEL, INITRAMFS, UDEV, NETWORK, SSH, OTHERS = (
    "firmware",
    "kernel",
    "initramfs",
    "udev",
    "network",
    "ssh",
    "others",
)
STAGES = {
    "cloud-init-local.service": "cloud-init local",
    "cloud-init-main.service": "cloud-init main",
    "cloud-init.service": "cloud-init network",
    "cloud-init-network.service": "cloud-init network",
    "cloud-config.service": "cloud-init config",
    "cloud-final.service": "cloud-init final",
}
"""cloud-init's units; since 24.3 one process serves all stages, and the second has another name."""
PHASES = (FIRMWARE, KERNEL, INITRAMFS, UDEV, *dict.fromkeys(STAGES.values()), NETWORK, SSH, OTHERS)
"""In the order in which people look for them."""
_KINDS = (
    (UDEV, re.compile(r"systemd-udev.*|systemd-hwdb-update\.service")),
    (NETWORK, re.compile(r"(systemd-networkd|systemd-resolved|networking|NetworkManager|network|dhcpcd|ifup@).*")),
    (SSH, re.compile(r"(ssh|sshd)(@.*|-keygen.*)?\.(service|socket)")),
)
_SPAN = re.compile(r"(\S+) ([0-9.]+) ([0-9.]+)")
LEAST_S = 0.05
"""A unit that took less is not shown by itself."""
SHOWN_OTHERS = 6


@dataclasses.dataclass(frozen=True, slots=True)
class BootSpan(Lasting):
    """A part of a boot.

    Attributes:
        phase: of `PHASES`.
        what: the unit of systemd; or the phase, where no unit does it.
        begin_s: since the guest's processor began.
        seconds: that it took, also beside others.
    """

    phase: str
    what: str
    begin_s: float
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """Where the seconds of a boot went.

    Attributes:
        seconds: until the guest was up, from its start by libvirt.
        emulated: why it was not run by KVM, or "".
        spans: by their beginning; several are at work at a time.
        costs: what took longest, with advice.
    """

    seconds: float
    emulated: str
    spans: tuple[BootSpan, ...]
    costs: tuple[Cost, ...]

    def to_dict(self) -> dict[str, t.Any]:
        """As JSON shows it."""
        return dataclasses.asdict(self)


def profile_of(seen: TrialObservations, report: Report) -> Profile:
    """Where the seconds of a boot went.

    Args:
        seen: of a guest.
        report: what follows from it.

    Raises:
        ImageFault: it was not up, or did not tell.
    """
    if report.seconds is None:
        raise ImageFault("the boot has no profile", next(one.found for one in report.findings))
    up_s = float(seen.value("up") or 0.0)
    spans = _early(seen, before_s=max(0.0, report.seconds - up_s))
    if len(spans) < 2:
        raise ImageFault("the boot has no profile", "the system in the image does not tell when it did what (systemd)")
    units = _units(seen, before_s=max(0.0, report.seconds - up_s))
    if units:
        began_s = spans[-1].end_s
        first_s = min(unit.begin_s for unit in units)
        spans += [BootSpan(OTHERS, "systemd", began_s, first_s - began_s)] if first_s - began_s >= LEAST_S else []
    spans += units
    spans.sort(key=lambda span: (span.begin_s, -span.seconds))
    return Profile(report.seconds, report.emulated, tuple(spans), report.costs)


def _early(seen: TrialObservations, *, before_s: float) -> list[BootSpan]:
    """Before systemd: the firmware, the kernel, its first file system."""
    marks = {name: float(at) for name, _blank, at in (line.partition(" ") for line in seen.values("mark"))}
    found = [BootSpan(FIRMWARE, FIRMWARE, 0.0, before_s)]
    userspace = marks.get("userspace")
    if userspace is None:
        return found
    initramfs = marks.get("initramfs", userspace)
    found.append(BootSpan(KERNEL, KERNEL, before_s, initramfs))
    if initramfs < userspace:
        found.append(BootSpan(INITRAMFS, INITRAMFS, before_s + initramfs, userspace - initramfs))
    return found


def _units(seen: TrialObservations, *, before_s: float) -> list[BootSpan]:
    """What systemd began and when it was done; of all others the longest."""
    found: list[BootSpan] = []
    others: list[BootSpan] = []
    for line in seen.values("span"):
        if not (match := _SPAN.fullmatch(line)):
            continue
        unit, begin_s, end_s = match[1], float(match[2]), float(match[3])
        span = BootSpan(phase_of(unit), unit, before_s + begin_s, max(0.0, end_s - begin_s))
        if span.seconds >= LEAST_S:
            (others if span.phase == OTHERS else found).append(span)
    others.sort(key=lambda span: -span.seconds)
    return found + others[:SHOWN_OTHERS]


def phase_of(unit: str) -> str:
    """The phase to which a unit of systemd belongs.

    Args:
        unit: its name.
    """
    if stage := STAGES.get(unit):
        return stage
    return next((phase for phase, names in _KINDS if names.fullmatch(unit)), OTHERS)
