# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest starts from its template, or boots in the same start, and its record says which and why."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import struct
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import GuestFault, NodeFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import build
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import leftovers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import virtiofsd
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import template

from ..conftest import JOB, Node
from .template_node import GUEST, TemplateNode


@pytest.fixture
def warm(node: Node, monkeypatch: pytest.MonkeyPatch) -> TemplateNode:
    return TemplateNode(node, monkeypatch)


def runs(warm: TemplateNode) -> bool:
    """Is there one guest, and nothing left of a way into it?"""
    directory = warm.node.settings.start_dir(JOB, 1) / GUEST
    return list(warm.hypervisor.running) == [GUEST] and not (directory / "memory.fifo").exists()


def test_guest_starts_from_its_template_and_gets_its_first_order(warm: TemplateNode) -> None:
    warm.make_template()
    assert warm.present() == "yes"
    assert runs(warm)
    assert warm.hypervisor.restored == [GUEST]
    guest = warm.hypervisor.guest
    assert guest is not None
    lines = dict(line.partition(" ")[::2] for line in guest.order.splitlines())
    assert list(lines)[:3] == ["version", "entropy", "clock"]
    assert lines["hostname"] == GUEST
    assert lines["mac"] == "52:54:00:01:02:01"
    files = [line.split()[1:3] for line in guest.order.splitlines() if line.startswith("file ")]
    assert files == [["0644", "/etc/vtorque/guest.env"], ["0600", "/etc/ssh/ssh_host_ed25519_key"]]
    assert guest.order.endswith("\nend\n")


@pytest.mark.parametrize("version", ["9000000", "11001000", "11002000", "11003000", "12009000"])
def test_guest_starts_warm_however_often_libvirt_opens_a_saved_state(warm: TemplateNode, version: str) -> None:
    warm.hypervisor.libvirt = version
    warm.make_template()
    assert warm.present() == "yes"
    assert runs(warm)
    assert warm.hypervisor.restored == [GUEST]


def test_two_guests_never_get_the_same_first_order(warm: TemplateNode) -> None:
    warm.make_template()
    orders = []
    for start in (1, 2):
        asked = dataclasses.replace(warm.part(), start=start)
        warm.node.present(asked)
        assert warm.hypervisor.guest is not None
        orders.append(dict(line.partition(" ")[::2] for line in warm.hypervisor.guest.order.splitlines()))
        warm.node.absent(start)
    for key in ("entropy", "machine_id", "boot_id", "instance_id"):
        assert orders[0][key] != orders[1][key]


def test_guest_boots_where_its_node_has_no_template(warm: TemplateNode) -> None:
    assert warm.present() == "no, because this node has no template of this shape"
    assert runs(warm)
    assert warm.hypervisor.restored == []


def test_site_without_warm_starts_says_nothing_of_them(warm: TemplateNode) -> None:
    warm.make_template()
    warm.node.settings = dataclasses.replace(warm.node.settings, warm_start=False)
    assert warm.present() == ""
    assert warm.hypervisor.restored == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"warm": False}, "the job asked for a cold start"),
        ({"vcpus": 3}, "no template of this shape"),
        ({"ram_mib": 96}, "no template of this shape"),
    ],
)
def test_guest_that_is_none_of_the_template_s_boots(warm: TemplateNode, changes: dict[str, t.Any], why: str) -> None:
    warm.make_template()
    asked = warm.part()
    asked = dataclasses.replace(asked, guests=(dataclasses.replace(asked.guests[0], **changes),))
    (facts,) = warm.node.present(asked)
    assert why in facts.warm
    assert runs(warm)


class Servers:
    """Stands in for `virtiofsd.start`: who serves which guest."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        patch.setattr(virtiofsd, "start", self.start)
        patch.setattr(leftovers, "end_servers", lambda guest, _settings: self.ended.append(guest.name))

    def start(self, tag: str, directory: str, serving: t.Any) -> pathlib.Path:
        for kind in ("sock", "log"):  # as it refuses to take another's place
            os.close(os.open(serving.guest / f"{tag}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        self.started.append(f"{tag} {directory}")
        return t.cast("pathlib.Path", serving.guest / f"{tag}.sock")


def test_home_is_plugged_into_a_guest_before_it_runs(warm: TemplateNode, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.node.settings = dataclasses.replace(warm.node.settings, home_via="virtiofs")
    servers = Servers(monkeypatch)
    warm.make_template()
    assert warm.present() == "yes"
    assert servers.started == ["vtorque0 /home/alice"]
    socket = warm.node.settings.start_dir(JOB, 1) / GUEST / "vtorque0.sock"
    (device,) = warm.hypervisor.plugged  # the stand-in refuses one for a guest that runs
    assert f'socket="{socket}"' in device
    assert "<access mode=" in (warm.hypervisor.place / f"{GUEST}.xml").read_text()


@pytest.mark.parametrize("how", ["device that is refused", "guest that refuses"])
def test_guest_that_boots_instead_is_served_anew(warm: TemplateNode, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    warm.node.settings = dataclasses.replace(warm.node.settings, home_via="virtiofs")
    servers = Servers(monkeypatch)
    warm.make_template()
    warm.hypervisor.refuses_devices = how == "device that is refused"
    warm.hypervisor.obeys = how != "guest that refuses"
    assert warm.present().startswith("no, because ")
    assert runs(warm)
    assert servers.started == ["vtorque0 /home/alice"] * 2
    assert servers.ended == [GUEST]
    assert "<driver type='virtiofs'" in (warm.hypervisor.place / f"{GUEST}.xml").read_text()


def spoil(warm: TemplateNode, made: template.Template, how: str) -> None:
    data = bytearray(made.memory.read_bytes())
    if how == "changed memory":
        data[-100] ^= 1
    elif how == "another header":
        data[16:20] = struct.pack("=I", 3)
    elif how == "truncated memory":
        del data[-1000:]
    if how == "truncated disk":
        with made.disk.open("r+b") as stream:
            stream.truncate(1000)
    elif how == "another qemu":
        warm.hypervisor.qemu = "8002000"
    elif how == "another image":
        record = {**warm.image.record, "disk_sha256": "e" * 64}
        warm.image = dataclasses.replace(warm.image, record=record)
    elif how == "image that cannot be warm":
        warm.image = dataclasses.replace(warm.image, record={})
    elif how == "guest that refuses":
        warm.hypervisor.obeys = False
    elif how == "libvirt that refuses":
        warm.hypervisor.memory += b"?"
    made.memory.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("changed memory", "not what its record says"),
        ("another header", "of version 3"),
        ("truncated memory", "its record says"),
        ("truncated disk", "the template's disk is not what its record says"),
        ("another qemu", "no template of this shape"),
        ("another image", "no template of this shape"),
        ("image that cannot be warm", "its image cannot be warm"),
        ("guest that refuses", "mac: no such device"),
        ("libvirt that refuses", "load of migration failed"),
    ],
)
def test_guest_boots_in_the_same_start_when_its_template_is_bad(warm: TemplateNode, how: str, why: str) -> None:
    spoil(warm, warm.make_template(), how)
    output = warm.present()
    assert output.startswith("no, because ")
    assert why.replace("the template's disk ", "") in output
    assert runs(warm)
    directory = warm.node.settings.start_dir(JOB, 1) / GUEST
    assert (directory / "disk.qcow2").read_bytes().startswith(b"QFI\xfb")
    assert (directory / "seed.iso").stat().st_size > 10_000, "a cold guest has its own seed"


@pytest.mark.parametrize("call", ["plug", "pause", "limit_memory"])
def test_node_is_not_blamed_when_libvirt_is_restarted_after_the_restore(warm: TemplateNode, call: str) -> None:
    warm.make_template()
    warm.hypervisor.restarted_before = call
    how = warm.present()
    assert runs(warm)
    assert (how == "yes") if call == "limit_memory" else ("no, because libvirt: internal error" in how)


def test_node_whose_libvirt_does_not_come_back_after_the_restore_is_at_fault(warm: TemplateNode) -> None:
    warm.make_template()
    warm.hypervisor.restarted_before = "pause"
    warm.hypervisor.dead_after_restart = True
    with pytest.raises(NodeFault, match="is dead") as caught:
        warm.present()
    assert caught.value.cause == "libvirt"


def test_template_that_failed_twice_is_gone(warm: TemplateNode) -> None:
    made = warm.make_template()
    warm.hypervisor.obeys = False
    for start in (1, 2):
        (facts,) = warm.node.present(dataclasses.replace(warm.part(), start=start))
        assert "mac: no such device" in facts.warm
        warm.node.absent(start)
    assert not made.place.exists()


def test_guest_that_is_never_ready_after_its_first_order_boots(
    warm: TemplateNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm.make_template()
    waits = []

    def wait(waiting: t.Any, *more: t.Any, **_options: object) -> dict[str, str]:
        waits.append(more[2].left_s())
        if len(waits) == 1:
            raise GuestFault("guest vcn1-1 was not ready within 40 s", "its console is silent", symptom="silent")
        return warm.node.wait(waiting)

    monkeypatch.setattr(build, "wait_ready", wait)
    assert warm.present() == "no, because guest vcn1-1 was not ready within 40 s: its console is silent"
    assert runs(warm)
    assert waits[0] < waits[1] / 2, "the boot has the greater part of the time"


def test_nothing_is_left_of_a_start_from_a_template(warm: TemplateNode) -> None:
    made = warm.make_template()
    warm.present()
    assert warm.node.absent() != ()
    assert warm.hypervisor.running == {}
    assert not warm.node.settings.start_dir(JOB, 1).exists()
    assert template.find(made.record.key, warm.node.settings) == made
