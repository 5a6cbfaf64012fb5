# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an image that was tried told on its console (`templates/trial/report.sh`), and what follows from it."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

from ...wire.health_report import BAD, OK, WARN
from ..guest.console import Console

MAX_LINES = 200
COSTLY_S = 1.0
SHOWN_COSTS = 3
_NOTHING_TO_BOOT = re.compile(r"No bootable (device|option)|Boot failed: not a bootable disk|BdsDxe: failed to load")
_LOGIN = re.compile(r"\blogin: ?$")
_SPAN = re.compile(r"(?:(\d+)min )?(?:(\d+(?:\.\d+)?)s|(\d+(?:\.\d+)?)ms)")
_ADVICE = (
    ("wait-online", "it waits for a network that no card of a guest has: let it wait for any, or mask it"),
    ("snapd", "jobs need no snaps: remove snapd"),
    ("apt-daily", "mask apt-daily.timer and apt-daily-upgrade.timer"),
    ("package-update-upgrade-install", "install packages when the image is made"),
    ("growpart", "guests' disks have the size of the image: take growpart out of cloud_init_modules"),
    ("resizefs", "guests' disks have the size of the image: take resizefs out of cloud_init_modules"),
    ("grub", "take grub_dpkg out of cloud_config_modules"),
    ("cloud-config", "a job needs cloud-init's first stages alone: mask cloud-config.service"),
    ("cloud-final", "a job needs cloud-init's first stages alone: mask cloud-final.service"),
)
"""What costs time in images of distributions, and what helps."""


class TrialConsole(Console):
    """The console of such a guest.

    Args:
        path: see `Console`.
        token: see `Console`.
    """

    def __init__(self, path: pathlib.Path, token: str) -> None:
        super().__init__(path, token)
        self._mark = re.compile(rf"vtorque-trial {re.escape(token)} (.*)")
        self.lines: list[str] = []
        self.login = False
        self.nothing_to_boot = ""

    def _line(self, line: str) -> None:
        if found := self._mark.search(line):
            if len(self.lines) < MAX_LINES:
                self.lines.append(found[1])
            return
        super()._line(line)
        self.login = self.login or bool(_LOGIN.search(line))
        if found := _NOTHING_TO_BOOT.search(line):
            self.nothing_to_boot = found[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """What took time while an image booted.

    Attributes:
        what: a unit of systemd, or a module of cloud-init's (`stage/config-name`).
        seconds: how long.
        advice: what helps, or "".
    """

    what: str
    seconds: float
    advice: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class TrialFinding:
    """What one check of a trial found.

    Attributes:
        check: `boots`, `cloud-init`, `sources`, `sshd`, `identity`, `users` or `time`.
        state: `ok`, `warn` or `bad`; with a bad one no job can run in the image.
        found: in one line.
        remedy: what to do about it, in one line, or "".
    """

    check: str
    state: str
    found: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class TrialObservations:
    """What was seen of a guest until it had told everything, ended, or its time was over.

    Attributes:
        seconds: from its start until it was up; without that, until it was given up.
        ended: how it ended by itself, or "".
        lines: what it told.
        stage: how far its console shows that it came.
        last_output: of its console.
        nothing_to_boot: the firmware's words, or "".
        panic: the kernel's words, or "".
        login: whether the console asked for a login.
        emulated: why it was not run by KVM, or "".
        network: whether it had a network card.
    """

    seconds: float
    ended: str = ""
    lines: tuple[str, ...] = ()
    stage: str = ""
    last_output: str = ""
    nothing_to_boot: str = ""
    panic: str = ""
    login: bool = False
    emulated: str = ""
    network: bool = True

    def values(self, key: str) -> tuple[str, ...]:
        """What was told behind this word."""
        return tuple(line[len(key) + 1 :] for line in self.lines if line.startswith(f"{key} "))

    def value(self, key: str) -> str | None:
        """The first of `values`, or None."""
        return next(iter(self.values(key)), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What a trial found.

    Attributes:
        seconds: until the system was up; None: it never was.
        emulated: why it was not run by KVM, or ""; what it took says nothing of a node then.
        startup: the sum as systemd tells it, or "".
        findings: in the order of their importance.
        costs: what took longest, longest first.
    """

    seconds: float | None
    emulated: str
    startup: str
    findings: tuple[TrialFinding, ...]
    costs: tuple[Cost, ...]

    @property
    def good(self) -> bool:
        """Whether jobs can run in it."""
        return all(finding.state != BAD for finding in self.findings)

    def to_dict(self) -> dict[str, t.Any]:
        """As JSON shows it."""
        return {"good": self.good, **dataclasses.asdict(self)}


def report_of(seen: TrialObservations) -> Report:
    """What follows from what was seen.

    Args:
        seen: of the guest.
    """
    up = seen.value("up") is not None
    costs = _costs(seen)
    findings = [_boots(seen, up=up)]
    # of what is dead nothing else is to be told
    if up or not (seen.nothing_to_boot or seen.panic or seen.ended):
        findings += _cloud_init(seen)
    if up and "end" in seen.lines:
        findings += [*_system(seen), *(_time(cost) for cost in costs[:SHOWN_COSTS] if cost.seconds >= COSTLY_S)]
    startup = seen.value("startup") or ""
    return Report(round(seen.seconds, 1) if up else None, seen.emulated, startup, tuple(findings), costs)


def _boots(seen: TrialObservations, *, up: bool) -> TrialFinding:
    by = ", by emulation" if seen.emulated else ""
    if up:
        return TrialFinding("boots", OK, f"up after {seen.seconds:.1f} s{by}")
    ending = f"its console ends with: {seen.last_output}" if seen.last_output else "its console is silent"
    if seen.nothing_to_boot:
        remedy = "is it a bootable disk? --boot uefi, or --kernel, for those that do not boot by BIOS"
        return TrialFinding("boots", BAD, f"the firmware found nothing to boot ({seen.nothing_to_boot})", remedy)
    if seen.panic:
        return TrialFinding("boots", BAD, seen.panic, ending)
    if seen.ended:
        return TrialFinding("boots", BAD, f"it ended after {seen.seconds:.0f} s: {seen.ended}", ending)
    if seen.login or (seen.value("begun") is None and "cloud-init" in seen.stage):
        return TrialFinding("boots", OK, f"it came so far within {seen.seconds:.0f} s{by}: {_far(seen)}")
    remedy = f"--boot-timeout gives it longer; {ending}" if seen.stage or seen.value("begun") else ending
    return TrialFinding("boots", BAD, f"it was not up after {seen.seconds:.0f} s{by}: {_far(seen)}", remedy)


def _far(seen: TrialObservations) -> str:
    if seen.login:
        return "it asks for a login"
    if seen.value("begun") is not None:
        return "cloud-init has begun, and the system did not become ready"
    return seen.stage or "nothing of a system was recognised on its console"


def _cloud_init(seen: TrialObservations) -> list[TrialFinding]:
    if seen.value("begun") is None and seen.value("up") is None:
        if "cloud-init" in seen.stage:
            problem, remedy = "is there, and did not take its seed", "NoCloud must be in its datasource_list"
        else:
            problem, remedy = (
                "told nothing: it is not there, is switched off, or does not look for a NoCloud seed",
                ("install cloud-init, with datasource_list: [NoCloud, None]"),
            )
        return [TrialFinding("cloud-init", BAD, problem, remedy)]
    # "/usr/bin/cloud-init 22.4.2"
    version = (seen.value("cloud-init") or "").rpartition(" ")[2]
    findings = [TrialFinding("cloud-init", OK, f"{version} took its seed by NoCloud".lstrip())]
    sources = seen.value("sources")
    if "end" in seen.lines and sources is not None:
        others = [word for word in re.findall(r"\w+", sources) if word not in ("NoCloud", "None")]
        if others:
            listed = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
            problem = f"cloud-init may look for others than NoCloud: {listed}"
            findings.append(TrialFinding("sources", WARN, problem, "datasource_list: [NoCloud, None]"))
    return findings


def _system(seen: TrialObservations) -> list[TrialFinding]:
    sshd = seen.value("sshd")
    found = (
        TrialFinding("sshd", OK, sshd) if sshd else TrialFinding("sshd", BAD, "is not there", "install openssh-server")
    )
    findings = [found]
    if brought := seen.values("identity"):
        problem = f"brings what each guest has of its own: {', '.join(brought)}"
        findings.append(TrialFinding("identity", WARN, problem, "empty /etc/machine-id, remove host keys"))
    if users := seen.values("user"):
        problem = f"has users of its own: {', '.join(users)}"
        findings.append(TrialFinding("users", WARN, problem, "remove them: their ids may be those of your users"))
    return findings


def _time(cost: Cost) -> TrialFinding:
    return TrialFinding("time", OK if not cost.advice else WARN, f"{cost.seconds:.1f} s: {cost.what}", cost.advice)


def _costs(seen: TrialObservations) -> tuple[Cost, ...]:
    found = []
    for line in (*seen.values("unit"), *seen.values("module")):
        span, _blank, what = line.rpartition(" ")
        if match := _SPAN.fullmatch(span):
            minutes, seconds, milliseconds = match.groups()
            total = 60 * int(minutes or 0) + float(seconds or 0) + float(milliseconds or 0) / 1000
            advice = next((advice_text for part, advice_text in _ADVICE if part in what), "")
            found.append(Cost(what, round(total, 3), advice))
    # a device is there when something else was done
    counted = [cost for cost in found if not cost.what.endswith(".device") and "vtorque-trial" not in cost.what]
    return tuple(sorted(counted, key=lambda cost: -cost.seconds))
