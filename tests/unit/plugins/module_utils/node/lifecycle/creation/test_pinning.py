# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests with cores of their own: what each start gets, that no other gets it, and what becomes of a thread astray."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import guest_processes, present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import pinning
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import cache_shares, claims, threads
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.pins import Pins
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import side_channels

from ...placement.test_cache_shares import capabilities, resctrl

if t.TYPE_CHECKING:
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import node_answers

    from ...conftest import Node

PINNED = {"vcpus": 2, "vcpu_cores": "auto"}
OTHER = "8.head"


@pytest.fixture
def placed(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, Pins]]:
    """Whose threads were looked at, of which process, and where they must be; every domain has a process."""
    found: list[tuple[str, int, Pins]] = []

    def processes(key: str, _settings: object) -> dict[int, tuple[str, bool]]:
        here = sorted((node.settings.guests_dir / key).iterdir())
        return {1000 + number: (f"qemu-system\0{path}/disk.qcow2", False) for number, path in enumerate(here)}

    def place(name: str, qemu: int, _servers: object, pins: Pins) -> tuple[str, ...]:
        found.append((name, qemu, pins))
        return ("kvm-pit",)

    monkeypatch.setattr(guest_processes, "read_processes", processes)
    monkeypatch.setattr(threads, "place_threads", place)
    return found


def present(
    node: Node, cores: tuple[int, ...] = (), count: int = 1, **part: t.Any
) -> tuple[node_answers.GuestFacts, ...]:
    return present_absent.ensure_guests(node.part(count, **{**PINNED, **part}), node.settings, node.soon(), cores=cores)


def test_present_of_pinned_guests_gives_each_vcpu_a_core_and_answers_with_it(
    node: Node, placed: list[tuple[str, int, Pins]], capfd: pytest.CaptureFixture[str]
) -> None:
    facts = present(node, (1, 2, 3, 5, 7), count=2)
    assert [(one.vcpu_cores, one.other_cores) for one in facts] == [("2;3", "1"), ("5;7", "1")]
    for one, pins in zip(facts, (("2", "3"), ("5", "7")), strict=True):
        root = ET.fromstring(node.hypervisor.running[one.name].xml)
        assert [pin.get("cpuset") for pin in root.iterfind("cputune/vcpupin")] == list(pins)
        assert root.find("cputune/emulatorpin").get("cpuset") == "1"  # type: ignore[union-attr]
    assert placed == [("vcn1-1", 1000, Pins(((2,), (3,)), (1,))), ("vcn1-2", 1001, Pins(((5,), (7,)), (1,)))]
    log = capfd.readouterr().err
    assert "cores of vcn1-1, read from its threads: vCPU 0 on 2; vCPU 1 on 3; other threads on 1; moved" in log


@pytest.mark.parametrize(("level", "parts"), [("off", []), ("cores", []), ("strict", [("0", "13824"), ("1", "12288")])])
def test_present_where_the_site_is_strict_gives_each_guest_a_part_of_the_caches(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, level: str, parts: list[tuple[str, str]]
) -> None:
    place = resctrl(tmp_path, {"": "L3:0=00003;1=0000f"})
    find = cache_shares.find_shares
    monkeypatch.setattr(cache_shares, "find_shares", lambda _root, count: find(capabilities(), count, place))
    monkeypatch.setattr(side_channels, "separate_threads", lambda *arguments: separated.append(arguments))
    separated: list[tuple[str, str]] = []
    node.settings = dataclasses.replace(node.settings, side_channels=level)
    names = [one.name for one in present(node, (1, 2), count=2, vcpus=1, vcpu_cores="")]
    assert sorted(separated) == [(name, level) for name in names]
    for name in names:
        root = ET.fromstring(node.hypervisor.running[name].xml)
        found = [(share.get("id"), share.get("size")) for share in root.iterfind("cputune/cachetune/cache")]
        assert found == parts


def test_present_again_answers_the_same(node: Node, placed: list[tuple[str, int, Pins]]) -> None:
    assert present(node) == present(node)
    assert len(placed) == 1


def test_present_of_a_second_job_gets_what_the_first_has_not(node: Node, placed: list[tuple[str, int, Pins]]) -> None:
    """Where the batch system gives no cores, or gives the same to two."""
    (first,) = present(node)
    (second,) = present(node, job_id=OTHER)
    assert (first.vcpu_cores, first.other_cores) == ("1;2", "0")
    assert (second.vcpu_cores, second.other_cores) == ("4;5", "3")
    with pytest.raises(SiteFault, match=r"guests of 7.head.1, 8.head.1 have 0-5 of its cores 0-7: .*need 3"):
        present(node, job_id="9.head", vcpus=3)
    assert len(placed) == 2


def test_cores_of_a_job_that_is_over_are_free(node: Node, placed: list[tuple[str, int, Pins]]) -> None:
    (first,) = present(node)
    node.absent()
    (second,) = present(node, job_id=OTHER)
    assert first.vcpu_cores == second.vcpu_cores
    assert len(placed) == 2


def test_present_with_too_few_cores_is_the_users_fault_and_makes_no_domain(node: Node) -> None:
    with pytest.raises(UserFault, match="need 2 processors of their own, and the job has 1 left"):
        present(node, (3,))
    assert node.hypervisor.running == {}


def test_present_of_guests_that_the_site_would_pin_shares_cores_where_they_are_too_few(
    node: Node, placed: list[tuple[str, int, Pins]], capfd: pytest.CaptureFixture[str]
) -> None:
    (facts,) = present(node, (1,), vcpu_cores="prefer")
    assert (facts.vcpu_cores, facts.other_cores, placed) == ("", "", [])
    assert ET.fromstring(node.hypervisor.running[facts.name].xml).find("cputune/vcpupin") is None
    assert "vCPUs share the cores of this job" in capfd.readouterr().err


def test_present_on_a_node_whose_topology_is_unknown_shares_cores_where_nobody_asked_for_them(
    node: Node, placed: list[tuple[str, int, Pins]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_capabilities: object) -> t.NoReturn:
        raise NodeFault("the topology of this node", "libvirt names no processor of it")

    monkeypatch.setattr(pinning, "read_topology", unknown)
    (facts,) = present(node, (1, 2, 3), vcpu_cores="prefer")
    assert (facts.vcpu_cores, placed) == ("", [])
    with pytest.raises(NodeFault, match="names no processor"):
        present(node, (1, 2, 3), job_id=OTHER)


def test_present_of_guests_whose_cores_may_change_pins_nothing(node: Node, placed: list[tuple[str, int, Pins]]) -> None:
    node.settings = dataclasses.replace(node.settings, cores_may_change=True)
    (facts,) = present(node, (1, 2, 3), vcpu_cores="prefer")
    assert (facts.vcpu_cores, placed) == ("", [])
    with pytest.raises(UserFault, match="cpuset is still to come"):
        present(node, (1, 2, 3), job_id=OTHER)


def test_present_of_guests_that_the_site_would_pin_gives_them_cores_where_there_are_enough(
    node: Node, placed: list[tuple[str, int, Pins]]
) -> None:
    (facts,) = present(node, (1, 2, 3), vcpu_cores="prefer")
    assert (facts.vcpu_cores, facts.other_cores) == ("2;3", "1")


def test_thread_astray_of_a_guest_that_the_site_would_pin_is_noted_alone(
    node: Node, placed: list[tuple[str, int, Pins]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def astray(name: str, *_words: object) -> tuple[str, ...]:
        raise NodeFault(f"thread vhost of {name}", "runs elsewhere")

    monkeypatch.setattr(threads, "place_threads", astray)
    assert present(node, (1, 2, 3), vcpu_cores="prefer")
    assert "thread vhost of vcn1-1: runs elsewhere" in capfd.readouterr().err


def test_present_with_a_map_places_as_it_says(node: Node, placed: list[tuple[str, int, Pins]]) -> None:
    (facts,) = present(node, (2, 4, 6), vcpu_cores="2;0", other_cores="1")
    assert (facts.vcpu_cores, facts.other_cores) == ("6;2", "4")
    assert placed[0][2] == Pins(((6,), (2,)), (4,))


def test_present_of_a_guest_whose_thread_is_astray_fails_with_its_name(
    node: Node, placed: list[tuple[str, int, Pins]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_words: object) -> t.NoReturn:
        raise NodeFault("the threads of guest vcn1-1", "vhost-7 (8) may run on 0-7")

    monkeypatch.setattr(threads, "place_threads", refuse)
    with pytest.raises(NodeFault, match="vhost-7"):
        present(node)
    assert placed == []


def test_present_of_a_guest_without_a_process_proves_nothing(node: Node) -> None:
    with pytest.raises(VTorqueError, match="the threads of guest vcn1-1: it has no process"):
        present(node)


def test_present_of_other_guests_loads_nothing_of_placement(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pinning.__package__.rpartition(".")[0]
    for name in [name for name in sys.modules if name.startswith(f"{package}.placement") or name.endswith(".pinning")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(sys.modules[pinning.__package__], "pinning")
    node.present()
    assert not [name for name in sys.modules if name.startswith((f"{package}.placement", pinning.__name__))]


def test_processes_of_a_start_are_told_apart_by_what_they_are(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        guest_processes.leftovers, "processes", lambda _settings: ((os.getpid(), "7.head.1"), (1, "8.head.1"))
    )
    ((text, server),) = guest_processes.read_processes("7.head.1", node.settings).values()
    assert text == pathlib.Path("/proc/self/cmdline").read_text(encoding="utf-8", errors="replace")
    assert not server


# cores for virtual I/O

IO = {"io_min": 1, "io_max": 2, "io_required": True}
SITE_IO = {**IO, "io_required": False}


@pytest.fixture
def io_node(node: Node) -> Node:
    """A node on which jobs may have such cores."""
    node.settings = dataclasses.replace(node.settings, io_cores=True, host_cores=1)
    return node


def test_present_of_guests_with_cores_for_virtual_io_proves_that_their_other_threads_are_there(
    io_node: Node, placed: list[tuple[str, int, Pins]], capfd: pytest.CaptureFixture[str]
) -> None:
    (facts,) = present(io_node, (1, 2, 3, 5, 7), **IO)
    assert (facts.vcpu_cores, facts.other_cores, facts.io_least) == ("5;7", "2-3", 1)
    root = ET.fromstring(io_node.hypervisor.running[facts.name].xml)
    assert root.find("cputune/emulatorpin").get("cpuset") == "2-3"  # type: ignore[union-attr]
    assert root.find("cputune/iothreadpin").get("cpuset") == "2-3"  # type: ignore[union-attr]
    assert placed == [("vcn1-1", 1000, Pins(((5,), (7,)), (2,), 1))]
    assert claims.read_pins(io_node.settings.start_dir("7.head", 1) / facts.name) == Pins(((5,), (7,)), (2, 3), 1)
    assert "other threads on 2 (virtual I/O, under load on 2-3)" in capfd.readouterr().err


def test_present_of_guests_whose_vcpus_share_cores_leaves_them_what_virtual_io_does_not_use(
    io_node: Node, placed: list[tuple[str, int, Pins]]
) -> None:
    (facts,) = present(io_node, (1, 2, 3, 5, 7), vcpu_cores="", **IO)
    assert (facts.vcpu_cores, facts.other_cores) == ("3,5,7;3,5,7", "2-3")
    assert placed == [("vcn1-1", 1000, Pins(((3, 5, 7),) * 2, (2,), 1))]


def test_present_of_guests_that_the_site_would_pin_shares_vcpus_cores_where_the_user_wants_virtual_io(
    io_node: Node, placed: list[tuple[str, int, Pins]], capfd: pytest.CaptureFixture[str]
) -> None:
    (facts,) = present(io_node, (1, 2, 3), vcpu_cores="prefer", **IO)
    assert (facts.vcpu_cores, facts.other_cores, facts.io_least) == ("3;3", "2", 1)
    assert "vCPUs share the cores of this job: its guests virtual I/O wants 1" in capfd.readouterr().err
    assert len(placed) == 1


@pytest.mark.parametrize("vcpu_cores", ["auto", "prefer", ""])
def test_present_with_too_few_cores_for_virtual_io_that_the_user_wants_makes_no_domain(
    io_node: Node, vcpu_cores: str
) -> None:
    with pytest.raises(UserFault, match="virtual I/O wants 4 of the job's 4 cores on this node"):
        present(io_node, (1, 2, 3, 5), vcpu_cores=vcpu_cores, io_min=4, io_max=4, io_required=True)
    assert io_node.hypervisor.running == {}


@pytest.mark.parametrize(("vcpu_cores", "own"), [("auto", "2;3"), ("prefer", "2;3"), ("", "")])
def test_present_without_room_for_virtual_io_of_the_sites_default_runs_without(
    io_node: Node, placed: list[tuple[str, int, Pins]], vcpu_cores: str, own: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (facts,) = present(io_node, (1, 2, 3), vcpu_cores=vcpu_cores, **{**SITE_IO, "io_min": 3, "io_max": 3})
    assert (facts.vcpu_cores, facts.io_least) == (own, 0)
    assert "iothread" not in io_node.hypervisor.running[facts.name].xml
    assert "guests have no cores for virtual I/O: virtual I/O wants 3" in capfd.readouterr().err


def test_present_on_a_node_that_has_no_virtual_io_is_refused_or_runs_without(
    node: Node, placed: list[tuple[str, int, Pins]], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SiteFault, match=r"iocm=true on cn1: jobs have no cores for virtual I/O on this node"):
        present(node, **IO)
    (facts,) = present(node, job_id=OTHER, **SITE_IO)
    assert facts.io_least == 0
    assert "(iocm_enabled, iocm_nodes)" in capfd.readouterr().err


def test_present_under_kvm_without_vhost_is_refused(
    io_node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(pinning, "VHOST_NET", tmp_path / "vhost-net")
    with pytest.raises(SiteFault, match=r"there is no .*vhost-net for the guests' network: load the module vhost_net"):
        pinning.check(
            io_node.part(**{**PINNED, **IO, "hypervisor": "kvm"}), io_node.settings,
            io_node.hypervisor.connect(""), (1, 2, 3, 4),  # type: ignore[arg-type]
        )  # fmt: skip


def test_present_of_guests_with_virtual_io_whose_cores_may_change_is_refused_or_runs_without(
    io_node: Node, placed: list[tuple[str, int, Pins]]
) -> None:
    io_node.settings = dataclasses.replace(io_node.settings, cores_may_change=True)
    with pytest.raises(UserFault, match="iocm: its cpuset is still to come"):
        present(io_node, (1, 2, 3, 4), vcpu_cores="prefer", **IO)
    (facts,) = present(io_node, (1, 2, 3, 4), job_id=OTHER, vcpu_cores="prefer", **SITE_IO)
    assert (facts.io_least, placed) == (0, [])


def test_cores_for_virtual_io_are_no_other_jobs(io_node: Node, placed: list[tuple[str, int, Pins]]) -> None:
    (first,) = present(io_node, **IO)
    assert (first.vcpu_cores, first.other_cores) == ("3;4", "1-2")
    with pytest.raises(SiteFault, match=r"guests of 7.head.1 have 1-4 of its cores 0-7: virtual I/O wants 2"):
        present(io_node, job_id=OTHER, **{**IO, "io_min": 2})
