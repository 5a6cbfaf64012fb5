# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from what a guest said in which an image was tried."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial.report import (
    Report,
    TrialConsole,
    TrialObservations,
    report_of,
)

TOKEN = "0123456789abcdef"
TOLD = (
    "begun 9.31", "up 21.07", "cloud-init /usr/bin/cloud-init 22.4.2", "sources [ NoCloud, None ]",
    "sshd /usr/sbin/sshd", "startup 1.9s (kernel) + 19.2s (userspace) = 21.1s.",
    "unit 1min 2.345s NetworkManager-wait-online.service", "unit 4.2s dev-vda.device",
    "unit 345ms systemd-udevd.service", "unit 9s vtorque-trial.service",
    "module 02.50000s init-network/config-growpart", "end",
)  # fmt: skip


def states(report: Report) -> dict[str, str]:
    return {finding.check: finding.state for finding in report.findings}


def found(report: Report, check: str) -> str:
    return next(f"{finding.found} | {finding.remedy}" for finding in report.findings if finding.check == check)


def test_a_good_image_is_told_with_what_it_costs() -> None:
    report = report_of(TrialObservations(24.5, lines=TOLD))
    assert report.good
    assert report.seconds == 24.5
    assert report.startup == "1.9s (kernel) + 19.2s (userspace) = 21.1s."
    assert [(cost.what, cost.seconds) for cost in report.costs] == [
        ("NetworkManager-wait-online.service", 62.345), ("init-network/config-growpart", 2.5),
        ("systemd-udevd.service", 0.345),
    ]  # fmt: skip
    assert [(one.check, one.state) for one in report.findings] == [
        ("boots", "ok"), ("cloud-init", "ok"), ("sshd", "ok"), ("time", "warn"), ("time", "warn"),
    ]  # fmt: skip
    assert found(report, "boots") == "up after 24.5 s | "
    assert found(report, "cloud-init") == "22.4.2 took its seed by NoCloud | "
    assert "it waits for a network" in found(report, "time")
    assert report.to_dict()["good"] is True


@pytest.mark.parametrize(
    ("changes", "check", "state", "message"),
    [
        ({"lines": [line for line in TOLD if "sshd " not in line]}, "sshd", "bad", "install openssh-server"),
        ({"lines": [*TOLD, "user debian", "user x"]}, "users", "warn", "has users of its own: debian, x"),
        ({"lines": [*TOLD, "identity /etc/machine-id"]}, "identity", "warn", "of its own: /etc/machine-id | empty"),
        ({"lines": [line.replace("NoCloud,", "NoCloud, Ec2, GCE,") for line in TOLD]}, "sources", "warn",
         "cloud-init may look for others than NoCloud: Ec2, GCE"),
        ({"emulated": "no kvm"}, "boots", "ok", "up after 24.5 s, by emulation"),
        ({"lines": ["begun 9"], "stage": "the system is starting"}, "boots", "bad", "cloud-init has begun, and"),
        ({"lines": []}, "boots", "bad", "not up after 24 s: nothing of a system was recognised"),
        ({"lines": []}, "cloud-init", "bad", "install cloud-init"),
        ({"lines": [], "login": True}, "boots", "ok", "it asks for a login"),
        ({"lines": [], "login": True}, "cloud-init", "bad", "told nothing: it is not there"),
        ({"lines": [], "stage": "cloud-init has the network"}, "boots", "ok", "cloud-init has the network"),
        ({"lines": [], "stage": "cloud-init has the network"}, "cloud-init", "bad", "NoCloud must be in its"),
        ({"lines": [], "nothing_to_boot": "No bootable device"}, "boots", "bad", "the firmware found nothing to boot"),
        ({"lines": [], "panic": "Kernel panic - not syncing: x", "last_output": "y"}, "boots", "bad", "not syncing: x"),
        ({"lines": [], "ended": "it shut down"}, "boots", "bad", "it ended after 24 s: it shut down | its console is"),
        ({"lines": ["begun 9", "up 20"], "ended": "it crashed"}, "boots", "ok", "up after"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_what_to_do(
    changes: dict[str, t.Any], check: str, state: str, message: str
) -> None:  # fmt: skip
    seen = TrialObservations(
        **{"seconds": 24.5, "lines": TOLD, **{key: _tuple(value) for key, value in changes.items()}}
    )
    report = report_of(seen)
    assert states(report)[check] == state
    assert message in found(report, check)
    assert report.good == ("bad" not in states(report).values())


def _tuple(value: t.Any) -> t.Any:
    return tuple(value) if isinstance(value, list) else value


def test_of_what_is_dead_nothing_else_is_told() -> None:
    assert states(report_of(TrialObservations(3.0, ended="it crashed"))) == {"boots": "bad"}
    assert states(report_of(TrialObservations(3.0, nothing_to_boot="No bootable device"))) == {"boots": "bad"}


def test_garbage_in_a_report_does_no_harm() -> None:
    answer = (*TOLD[:-1], "unit", "unit x y", "module 1.s a", "unit 99999999999999999999s a", "sources", "user", "end")
    report = report_of(TrialObservations(1.0, lines=answer))
    assert report.good
    assert report.costs[0].what == "a"


@pytest.fixture
def console(tmp_path: pathlib.Path) -> TrialConsole:
    return TrialConsole(tmp_path / "console.log", TOKEN)


def test_console_gives_the_lines_of_this_guest_and_how_far_it_is(console: TrialConsole) -> None:
    console.path.write_text(
        "Booting from Hard Disk...\r\n[    0.0] Linux version 6.1\r\n"
        f"\r\nvtorque-trial {TOKEN} begun 9.31\r\nvtorque-trial fedc begun 1\r\n"
        f"[    9.9] x\n\x1b[0mvtorque-trial {TOKEN} sources [ NoCloud ]\r\ndebian login: \nvtorque-trial {TOKEN} en"
    )
    console.read()
    assert console.lines == ["begun 9.31", "sources [ NoCloud ]"]
    assert (console.login, console.nothing_to_boot, console.stage) == (True, "", "the kernel is running")


@pytest.mark.parametrize("message", ["No bootable device.", "BdsDxe: failed to load Boot0001", "No bootable option or"])
def test_firmware_that_finds_nothing_is_heard(console: TrialConsole, message: str) -> None:
    console.path.write_text(f"SeaBIOS\r\n{message}\r\n")
    console.read()
    assert message.startswith(console.nothing_to_boot)
    assert console.nothing_to_boot


def test_guest_that_tells_without_end_fills_no_memory(console: TrialConsole) -> None:
    console.path.write_text(f"vtorque-trial {TOKEN} user x\n" * 5000)
    console.read()
    assert len(console.lines) == 200
