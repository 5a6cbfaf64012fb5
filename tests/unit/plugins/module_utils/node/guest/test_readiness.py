# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readiness: the console's line and the host key together, and every other way in which a wait can end."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import pathlib
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    GuestFault,
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.events import DomainEvent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import readiness, ssh_probe
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.console import Console
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network.addresses import Candidate
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline, Timings

TOKEN = "0123456789abcdef"
ADDRESS = "10.77.0.100"
LONG = 120.0
# what OpenSSH 9.2 says on standard error, for each case
RIGHT = "vtorque-probe@10.77.0.100: Permission denied (publickey)."
NO_KEY = """No ED25519 host key is known for vtorque-guest and you have requested strict checking.
Host key verification failed."""
CHANGED = "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed."
OTHER_KIND = "Unable to negotiate with 10.77.0.100 port 22: no matching host key type found. Their offer: ssh-rsa"
REFUSED = "ssh: connect to host 10.77.0.100 port 22: Connection refused"


@dataclasses.dataclass
class Facts:
    state: str


class FakeDomains:
    """A connection whose events are rung by the test."""

    def __init__(self) -> None:
        self.heard: collections.deque[DomainEvent] = collections.deque()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)
        self.returns = True
        self.states: dict[str, Facts | None] = collections.defaultdict(lambda: Facts("running"))

    def ring(self, *event: str) -> None:
        if event[1] in ("stopped", "shutdown", "crashed", "undefined"):
            self.states[event[0]] = None
        elif event[1] == "suspended":
            self.states[event[0]] = Facts("paused")
        self.heard.append(DomainEvent(*event))
        os.eventfd_write(self.bell, 1)

    def facts(self, name: str) -> Facts | None:
        return self.states[name]

    def reconnect(self, _within_s: float) -> None:
        if not self.returns:
            raise NodeFault("libvirt", "gave no answer", cause="libvirt")

    def fileno(self) -> int:
        return self.bell

    def events(self) -> tuple[DomainEvent, ...]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        return tuple(self.heard.popleft() for _number in range(len(self.heard)))


class FakeNeighbours:
    """Candidates that the test makes known."""

    def __init__(self) -> None:
        self.found: collections.deque[tuple[str, Candidate]] = collections.deque()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)

    def tell(self, mac: str, address: str) -> None:
        self.found.append((mac, Candidate(address, "neighbour")))
        os.eventfd_write(self.bell, 1)

    def filenos(self) -> tuple[int, ...]:
        return (self.bell,)

    def candidates(self) -> tuple[tuple[str, Candidate], ...]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        return tuple(self.found.popleft() for _number in range(len(self.found)))


class Scene:
    """Guests, and what happens around them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.domains = FakeDomains()
        self.neighbours = FakeNeighbours()
        self.guests: list[readiness.AwaitedGuest] = []
        self.ssh = directory / "ssh"
        self.answers(RIGHT)

    def answers(self, *arguments: str) -> None:
        """What ssh says, by turns, of the address it is asked at; the last for ever.  It notes what it was asked."""
        turns = self.directory / "turns"
        turns.mkdir(exist_ok=True)
        for number, text in enumerate(arguments):
            (turns / str(number)).write_text(f"{text}\n")
        self.ssh.write_text(
            f'#!/bin/sh\necho "$*" >> {self.directory}/asked\n'
            f"n=$(wc -l < {self.directory}/asked)\n"
            f"n=$((n > {len(arguments)} ? {len(arguments)} : n))\nfor word; do at=$before; before=$word; done\n"
            f'sed "s/{ADDRESS}/$at/" {turns}/$((n - 1)) >&2\nexit 255\n'
        )
        self.ssh.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        file = self.directory / "asked"
        return file.read_text().splitlines() if file.exists() else []

    def guest(self, number: int = 1, **more: t.Any) -> readiness.AwaitedGuest:
        directory = self.directory / f"vcn1-{number}"
        directory.mkdir()
        ssh_probe.write_known_hosts(directory / "known_hosts", f"ssh-ed25519 {'A' * 68} guest")
        console = Console(directory / "console.log", TOKEN)
        guest = readiness.AwaitedGuest(
            f"vcn1-{number}",
            f"52:54:00:00:01:0{number}",
            functools.partial(ssh_probe.SshProbe, self.ssh, directory / "known_hosts"),
            console,
            Timings(),
            **more,
        )
        self.guests.append(guest)
        return guest

    def says(self, guest: readiness.AwaitedGuest, text: str) -> None:
        with guest.console.path.open("a") as stream:
            stream.write(f"{text}\n")

    def wait(self, seconds: float = LONG) -> dict[str, str]:
        domains, neighbours = t.cast(t.Any, self.domains), t.cast(t.Any, self.neighbours)
        return readiness.wait_ready(self.guests, domains, neighbours, Deadline.after(seconds))


@pytest.fixture
def scene(tmp_path: pathlib.Path) -> Scene:
    return Scene(tmp_path)


def ready_line(address: str = ADDRESS) -> str:
    return f"vtorque-ready {TOKEN} {address}"


def test_ready_is_the_line_and_the_key(scene: Scene) -> None:
    guest = scene.guest()
    scene.says(guest, ready_line())
    assert scene.wait() == {"vcn1-1": ADDRESS}
    assert set(guest.timings.seconds) == {"address", "ready"}


def test_ssh_is_asked_with_the_expected_key_and_no_way_to_log_in(scene: Scene) -> None:
    guest = scene.guest()
    scene.says(guest, ready_line())
    scene.wait()
    asked = scene.asked[0]
    known_hosts = guest.console.path.parent / "known_hosts"
    for content_text in (
        "-F none", "BatchMode=yes", "PreferredAuthentications=none", "StrictHostKeyChecking=yes",
        f"UserKnownHostsFile={known_hosts}", "GlobalKnownHostsFile=/dev/null", "HostKeyAlgorithms=ssh-ed25519",
    ):  # fmt: skip
        assert content_text in asked
    assert asked.endswith(f"-l vtorque-probe -- {ADDRESS} true")


@pytest.mark.parametrize(
    "message",
    [
        f"Received disconnect from {ADDRESS} port 22:2: Permission denied",
        f"Received disconnect from {ADDRESS} port 22:2: x\n{RIGHT}",
        f"{RIGHT}\nx",
        RIGHT.replace("(", "").replace(")", ""),
        RIGHT.replace(ADDRESS, "10.77.0.10"),
        RIGHT.replace("vtorque-probe", "root"),
        " " + RIGHT,
    ],
)
def test_a_refusal_is_sshs_own_line_and_nothing_beside_it(scene: Scene, message: str) -> None:
    scene.answers(message)
    scene.says(scene.guest(), ready_line())
    with pytest.raises(SiteFault, match="sshd did not answer"):
        scene.wait(1.0)


def test_refusal_that_is_a_peers_is_none_after_any_number_of_words(scene: Scene) -> None:
    """What is kept of ssh's words is their beginning."""
    scene.answers("x" * (8192 - 1) + f"\n{RIGHT}" + "\n" * 10_000)
    scene.says(scene.guest(), ready_line())
    with pytest.raises(SiteFault, match="sshd did not answer"):
        scene.wait(1.0)
    scene.answers("\n" * 8192 + RIGHT)
    with pytest.raises(SiteFault, match="sshd did not answer"):
        scene.wait(1.0)


def test_line_that_comes_later_is_heard(scene: Scene) -> None:
    guest = scene.guest()
    threading.Timer(0.2, scene.says, [guest, ready_line()]).start()
    assert scene.wait() == {"vcn1-1": ADDRESS}


def test_guest_that_may_be_silent_is_asked_at_any_address_of_its_own(scene: Scene) -> None:
    """An image of OSv without the launcher says nothing; its key (a token there) proves it."""
    guest = scene.guest(announces=False)
    scene.answers("kex_exchange_identification: no answer", RIGHT)
    scene.neighbours.tell(guest.mac, ADDRESS)
    assert scene.wait() == {"vcn1-1": ADDRESS}
    assert len(scene.asked) == 2


def test_address_that_osvs_kernel_prints_is_asked_where_nothing_else_names_one(scene: Scene) -> None:
    """`eth0: ADDRESS`, as core/dhcp.cc prints it; of a guest that must announce itself it is none."""
    guest = scene.guest(announces=False)
    scene.says(guest, f"eth0: {ADDRESS}\r")
    assert scene.wait() == {"vcn1-1": ADDRESS}
    scene.guests.clear()
    other = scene.guest(2)
    scene.says(other, f"eth0: {ADDRESS}")
    with pytest.raises(VTorqueError, match="was not ready"):
        scene.wait(0.5)


def test_an_address_alone_is_not_ready(scene: Scene) -> None:
    guest = scene.guest()
    scene.neighbours.tell(guest.mac, ADDRESS)
    with pytest.raises(VTorqueError, match=rf"{ADDRESS} \(neighbour\)"):
        scene.wait(0.2)
    assert scene.asked == []


def test_refused_connection_is_asked_again(scene: Scene) -> None:
    scene.answers(REFUSED, REFUSED, RIGHT)
    scene.says(scene.guest(), ready_line())
    assert scene.wait() == {"vcn1-1": ADDRESS}
    assert len(scene.asked) == 3


@pytest.mark.parametrize("message", [NO_KEY, CHANGED, OTHER_KIND])
def test_another_key_at_the_guests_own_address_is_an_error_of_its_own(scene: Scene, message: str) -> None:
    scene.answers(message)
    scene.says(scene.guest(), ready_line())
    with pytest.raises(readiness.WrongHostKey, match="in its place"):
        scene.wait()


def test_another_key_at_a_mere_candidate_only_rules_that_out(scene: Scene) -> None:
    scene.answers(REFUSED, CHANGED, RIGHT)
    guest = scene.guest()
    scene.neighbours.tell(guest.mac, "10.77.0.66")
    scene.says(guest, ready_line())
    assert scene.wait() == {"vcn1-1": ADDRESS}
    assert "10.77.0.66" in scene.asked[1]


def test_address_that_leads_to_ourselves_is_not_asked(scene: Scene) -> None:
    guest = scene.guest()
    scene.says(guest, ready_line("127.0.0.1"))
    with pytest.raises(SiteFault):
        scene.wait(0.2)
    assert scene.asked == []


def test_address_of_the_static_map_is_known_beforehand(scene: Scene) -> None:
    guest = scene.guest(expected=(Candidate("10.77.1.1", "static map"),))
    scene.says(guest, ready_line("127.0.0.1"))
    assert scene.wait() == {"vcn1-1": "10.77.1.1"}


def test_all_guests_are_waited_for_at_once(scene: Scene) -> None:
    first, second = scene.guest(1), scene.guest(2)
    scene.says(second, ready_line("10.77.0.102"))
    threading.Timer(0.2, scene.says, [first, ready_line("10.77.0.101")]).start()
    assert scene.wait() == {"vcn1-1": "10.77.0.101", "vcn1-2": "10.77.0.102"}


def test_guest_that_says_why_it_cannot_is_believed(scene: Scene) -> None:
    scene.says(scene.guest(), f"vtorque-failed {TOKEN} identity: \x1b[1mno user alice")
    with pytest.raises(VTorqueError, match="identity: no user alice"):
        scene.wait()


def test_mount_that_does_not_come_is_the_sites_fault(scene: Scene) -> None:
    scene.says(scene.guest(), f"vtorque-failed {TOKEN} mount: fs:/home/alice on /home/alice (nfs), tried for 3 s")
    with pytest.raises(SiteFault, match="mount: fs:/home/alice on /home/alice"):
        scene.wait()


def test_image_that_cannot_share_memory_is_the_users_choice(scene: Scene) -> None:
    scene.says(scene.guest(), f"vtorque-failed {TOKEN} unclot: the device has not come to the guest")
    with pytest.raises(UserFault, match="unclot: the device has not come"):
        scene.wait()


def test_panic_ends_the_wait(scene: Scene) -> None:
    scene.says(scene.guest(), "[ 1.0] Kernel panic - not syncing: no init found")
    with pytest.raises(VTorqueError, match="panicked: Kernel panic - not syncing: no init found"):
        scene.wait()


@pytest.mark.parametrize("kind", ["stopped", "crashed", "shutdown"])
def test_guest_that_dies_is_told_with_its_last_words(scene: Scene, kind: str) -> None:
    guest = scene.guest()
    scene.says(guest, "[ 1.0] EXT4-fs error: \x1b[2Jno inode")
    threading.Timer(0.2, scene.domains.ring, ["vcn1-1", kind, "qemu failed"]).start()
    with pytest.raises(VTorqueError, match="EXT4-fs error: no inode") as caught:
        scene.wait()
    assert caught.value.fault == "unclear"


def test_guest_that_is_paused_is_told_with_the_reason(scene: Scene) -> None:
    scene.guest()
    threading.Timer(0.2, scene.domains.ring, ["vcn1-1", "suspended", "an I/O error"]).start()
    with pytest.raises(VTorqueError, match=r"paused: an I/O error"):
        scene.wait()


@pytest.mark.parametrize(("facts", "message"), [(None, "ended"), (Facts("paused"), "paused")])
def test_event_before_the_wait_is_noticed(scene: Scene, facts: Facts | None, message: str) -> None:
    scene.guest()
    scene.domains.states["vcn1-1"] = facts
    with pytest.raises(VTorqueError, match=message):
        scene.wait()


def test_another_domains_death_is_none_of_ours(scene: Scene) -> None:
    guest = scene.guest()
    scene.domains.ring("vcn1-10", "stopped", "")
    scene.says(guest, ready_line())
    assert scene.wait() == {"vcn1-1": ADDRESS}


def test_late_word_of_the_end_of_a_guest_of_the_same_name_is_none_of_this_one(scene: Scene) -> None:
    """libvirt tells it after its own answer: a warm start that failed is ended, and the guest boots at once."""
    guest = scene.guest()
    scene.domains.ring("vcn1-1", "stopped", "it was destroyed")
    scene.domains.states["vcn1-1"] = Facts("running")
    scene.says(guest, ready_line())
    assert scene.wait() == {"vcn1-1": ADDRESS}


def test_guest_that_stood_still_after_its_restore_and_runs_is_none_that_was_paused(scene: Scene) -> None:
    guest = scene.guest()
    scene.domains.ring("vcn1-1", "suspended", "")
    scene.domains.ring("vcn1-1", "resumed", "")
    scene.domains.states["vcn1-1"] = Facts("running")
    scene.says(guest, ready_line())
    assert scene.wait() == {"vcn1-1": ADDRESS}


def test_libvirt_that_is_lost_is_the_nodes_fault(scene: Scene) -> None:
    scene.guest()
    scene.domains.returns = False
    scene.domains.ring("", "lost", "libvirt ended")
    with pytest.raises(NodeFault, match="libvirt ended"):
        scene.wait()


def test_guest_is_waited_for_when_libvirt_is_restarted(scene: Scene) -> None:
    guest = scene.guest()
    scene.domains.ring("", "lost", "libvirt ended")
    scene.says(guest, ready_line())
    assert scene.wait() == {"vcn1-1": ADDRESS}


def test_guest_that_ended_while_libvirt_was_restarted_is_found(scene: Scene) -> None:
    scene.guest()
    scene.domains.ring("", "lost", "libvirt ended")
    scene.domains.states["vcn1-1"] = None
    with pytest.raises(GuestFault, match="ended before it was ready"):
        scene.wait()


@pytest.mark.parametrize(
    ("text", "fault", "message"),
    [
        ("", "unclear", "console is silent"),
        ("Linux version 6.1.0", "site", "the kernel is running; addresses seen: none"),
        (ready_line(), "site", "sshd did not answer"),
    ],
)
def test_the_deadline_says_what_was_waited_for_and_what_was_seen(
    scene: Scene, text: str, fault: str, message: str
) -> None:
    scene.answers(REFUSED)
    guest = scene.guest()
    if text:
        scene.says(guest, text)
    with pytest.raises(VTorqueError, match="was not ready within") as caught:
        scene.wait(0.6)
    assert caught.value.fault == fault
    assert message in str(caught.value)


def test_no_ssh_is_left_when_the_wait_ends(scene: Scene) -> None:
    guest = scene.guest()
    scene.ssh.write_text(
        f"#!/bin/sh\necho $$ > {scene.directory}/pid\n"
        f"echo vtorque-failed {TOKEN} late >> {guest.console.path}\nexec sleep 600\n"
    )
    scene.says(guest, ready_line())
    with pytest.raises(VTorqueError, match="late"):
        scene.wait()
    pid = (scene.directory / "pid").read_text().strip()
    assert not pathlib.Path(f"/proc/{pid}").exists()
