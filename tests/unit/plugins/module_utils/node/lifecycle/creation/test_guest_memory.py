# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests on a node of two cells: their cells, their pages, and what two jobs beside each other may have."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import wait_for_copy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import shared_region
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import guest_processes, present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import advice, claims, threads
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import memory

from ...conftest import Connection
from ...placement.pools import Pools

if t.TYPE_CHECKING:
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import node_answers

    from ...conftest import Node

CELLS, CORES, MIB = 2, 4, 1024
STRICT = {"vcpus": 2, "vcpu_cores": "auto", "numa": "auto", "ram_mib": 256}
OTHER = "8.head"


def capabilities() -> ET.Element:
    """Two sockets of four cores, a GiB each."""
    cells = ""
    for cell in range(CELLS):
        first = range(cell * CORES, (cell + 1) * CORES)
        cores = "".join(f"<cpu id='{n}' socket_id='{cell}' core_id='{n}' siblings='{n}'/>" for n in first)
        far = "".join(f"<sibling id='{other}' value='{10 if other == cell else 21}'/>" for other in range(CELLS))
        cells += (
            f"<cell id='{cell}'><memory unit='KiB'>{MIB * 1024}</memory><distances>{far}</distances>"
            f"<cpus num='{CORES}'>{cores}</cpus></cell>"
        )
    return ET.fromstring(f"<capabilities><host><topology><cells>{cells}</cells></topology></host></capabilities>")


@pytest.fixture(autouse=True)
def pools(node: Node, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Pools:
    """The node has two cells; its guests' threads are where they must be."""
    monkeypatch.setattr(Connection, "host_capabilities", staticmethod(capabilities))
    node.settings = dataclasses.replace(node.settings, max_guests=9)
    monkeypatch.setattr(memory, "node_mib", lambda: CELLS * MIB)
    monkeypatch.setattr(memory, "overhead_mib", lambda _spec: 10)

    def processes(key: str, _settings: object) -> dict[int, tuple[str, bool]]:
        here = sorted((node.settings.guests_dir / key).iterdir())
        return {1000 + number: (f"qemu-system\0{path}/disk.qcow2", False) for number, path in enumerate(here)}

    monkeypatch.setattr(guest_processes, "read_processes", processes)
    monkeypatch.setattr(threads, "place_threads", lambda *_words: ())
    return Pools(tmp_path / "sys", monkeypatch)


def present(
    node: Node, cores: tuple[int, ...] = (), count: int = 1, **part: t.Any
) -> tuple[node_answers.GuestFacts, ...]:
    return present_absent.ensure_guests(node.part(count, **{**STRICT, **part}), node.settings, node.soon(), cores=cores)


def xml_of(node: Node, facts: node_answers.GuestFacts) -> ET.Element:
    return ET.fromstring(node.hypervisor.running[facts.name].xml)


def nodesets(root: ET.Element) -> list[str | None]:
    return [one.get("nodeset") for one in root.iterfind("numatune/memnode")]


def test_guest_on_two_cells_shows_them_and_has_their_memory(node: Node) -> None:
    (facts,) = present(node, (2, 3, 4, 5, 6), vcpus=4, ram_mib=400)
    root = xml_of(node, facts)
    assert facts.vcpu_cores == "2;4;5;6" or facts.vcpu_cores == "3;4;5;6"
    assert facts.cells == "0:0:100;1:1-3:300"
    assert nodesets(root) == ["0", "1"]
    assert [(cell.get("cpus"), cell.get("memory")) for cell in root.iterfind("cpu/numa/cell")] == [
        ("0", "100"), ("1,2,3", "300"),
    ]  # fmt: skip
    assert [one.get("value") for one in root.iterfind("cpu/numa/cell/distances/sibling")] == ["10", "21", "21", "10"]


def test_two_guests_have_a_cell_each(node: Node) -> None:
    first, second = present(node, count=2)
    assert (first.cells, second.cells) == ("1:0-1:256", "0:0-1:256") or (first.cells, second.cells) == (
        "0:0-1:256", "1:0-1:256",
    )  # fmt: skip
    assert nodesets(xml_of(node, first)) != nodesets(xml_of(node, second))


def test_two_jobs_by_the_cores_of_cells_share_no_core_and_no_cell(node: Node) -> None:
    (first,) = present(node, (0, 1, 2, 3))
    (second,) = present(node, (4, 5, 6, 7), job_id=OTHER)
    assert (first.cells, second.cells) == ("0:0-1:256", "1:0-1:256")
    cores = [set(f"{one.vcpu_cores};{one.other_cores}".split(";")) for one in (first, second)]
    assert cores[0].isdisjoint(cores[1])


def test_guest_that_asks_for_no_cores_of_its_own_has_the_xml_it_always_had(node: Node) -> None:
    (facts,) = present(node, vcpu_cores="prefer", numa="off")
    root = xml_of(node, facts)
    assert root.find("numatune") is None
    assert root.find("cpu") is None
    assert root.find("memoryBacking") is None
    assert (facts.cells, facts.pages) == ("", "")


@pytest.mark.parametrize(
    ("cores", "more", "why"),
    [
        ((3,), {}, "need 2 processors of their own"),
        ((2, 3, 4, 5), {"vcpus": 3, "numa": "1"}, "numa=1"),
        ((), {"vcpus": 4, "numa": "1", "vcpu_cores": "0;1;4;5"}, "numa=1"),
        ((), {"ram_mib": 1025}, "1025 MiB in NUMA cell 0: it has 1024 MiB"),
        ((), {"ram_mib": 1026, "hugepages": "2M"}, "513 pages of 2M in NUMA cell 0: it has 1024 MiB"),
    ],
)
def test_what_a_node_can_never_give_is_refused_before_anything_is_waited_for(
    node: Node, monkeypatch: pytest.MonkeyPatch, cores: tuple[int, ...], more: dict[str, t.Any], why: str
) -> None:
    def copy(*_words: object) -> t.NoReturn:
        raise NodeFault("the copy of the image", "it was waited for")

    monkeypatch.setattr(wait_for_copy, "wait_for_copies", copy)
    with pytest.raises(UserFault, match=why):
        present(node, cores, **more)
    assert node.things == []


def test_huge_pages_are_set_apart_before_qemu_and_given_back(node: Node, pools: Pools) -> None:
    pools.set(0, 10)
    (facts,) = present(node, (0, 1, 2, 3), hugepages="2M")
    root = xml_of(node, facts)
    assert facts.pages == "2M"
    assert root.find("memoryBacking/hugepages/page").attrib == {"size": "2048", "unit": "KiB"}  # type: ignore[union-attr]
    assert root.find("memoryBacking/allocation").get("mode") == "immediate"  # type: ignore[union-attr]
    assert pools.total(0) == 128
    assert node.hypervisor.limits[facts.name] == 10 + memory.EMULATION_MIB  # huge pages count nowhere there
    node.absent()
    assert pools.total(0) == 10
    assert not [thing for thing in node.things if thing != "hugepages"]


def test_pages_that_a_site_has_set_apart_are_used_first(node: Node, pools: Pools) -> None:
    pools.set(0, 200)
    present(node, (0, 1, 2, 3), hugepages="2M")
    assert pools.total(0) == 200
    node.absent()
    assert pools.total(0) == 200


def test_pages_of_a_guest_that_is_about_to_start_are_nobody_elses(node: Node, pools: Pools) -> None:
    """Its qemu has not touched them: the kernel still counts them as free."""
    pools.set(0, 200)
    (first,) = present(node, (0, 1, 2), hugepages="2M")
    claim = next(node.settings.guests_dir.glob(f"*/*/{claims.FILE}"))
    written = json.loads(claim.read_text())
    assert written["taken"]
    claim.chmod(0o600)
    claim.write_text(json.dumps({**written, "taken": False}))
    node.settings = dataclasses.replace(node.settings, pages_raise=False)
    with pytest.raises(SiteFault, match="pages of 2M in NUMA cell 0: 128 are wanted, 72 are free"):
        present(node, (3,), job_id=OTHER, vcpus=1, hugepages="2M")
    assert first.pages == "2M"


def test_pages_that_the_kernel_does_not_find_are_refused_with_cell_wanted_and_free(node: Node, pools: Pools) -> None:
    pools.set(0, 30, 10)
    pools.most = 90
    with pytest.raises(
        UserFault, match=r"pages of 2M in NUMA cell 0: 128 are wanted, 20 are free; 108 more .* 60 were"
    ):
        present(node, (0, 1, 2, 3), hugepages="2M")
    assert pools.total(0) == 30
    node.absent()
    assert pools.total(0) == 30


def test_site_that_sets_nothing_apart_refuses_what_is_short(node: Node, pools: Pools) -> None:
    node.settings = dataclasses.replace(node.settings, pages_raise=False)
    pools.set(0, 100)
    with pytest.raises(UserFault, match="128 pages of 2M in NUMA cell 0: 100 are set apart there"):
        present(node, (0, 1, 2, 3), hugepages="2M")
    pools.set(0, 130, 10)
    with pytest.raises(UserFault, match="128 are wanted, 120 are free"):
        present(node, (0, 1, 2, 3), hugepages="2M")


@pytest.mark.parametrize(
    ("gib", "most", "pages"), [(1, 10_000, "1G"), (0, 10_000, "2M"), (0, 0, "")], ids=["1G", "2M", "ordinary"]
)
def test_auto_takes_the_largest_pages_that_there_are(
    node: Node, pools: Pools, gib: int, most: int, pages: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pools.set(0, gib, kib=1048576)
    pools.most = most
    node.settings = dataclasses.replace(node.settings, host_ram_mib=0)
    (facts,) = present(node, (0, 1, 2, 3), hugepages="auto", ram_mib=1024)
    assert facts.pages == pages
    assert ("no huge pages of 1024 MiB" in capfd.readouterr().err) == (pages != "1G")
    node.absent()
    assert (pools.total(0), pools.total(0, 1048576)) == (0, gib)


def test_ordinary_guests_get_nothing_of_what_is_in_pools(node: Node, pools: Pools) -> None:
    pools.set(0, 400)
    plain = {"vcpu_cores": "", "numa": "off"}
    with pytest.raises(UserFault, match="the node has 1238 MiB for guests"):
        present(node, ram_mib=1239, **plain)
    present(node, ram_mib=1000, **plain)
    with pytest.raises(SiteFault, match="239 MiB of ordinary memory: 238 MiB are free, 800 are in huge pages"):
        present(node, ram_mib=239, job_id=OTHER, **plain)
    present(node, ram_mib=238, job_id="9.head", **plain)
    # and whoever wants huge pages gets none that would have to be set apart of it
    with pytest.raises(SiteFault, match="guests of other jobs"):
        present(node, (4, 5, 6, 7), job_id="10.head", hugepages="2M", ram_mib=64)
    present(node, (0, 1, 2, 3), job_id="11.head", hugepages="2M", ram_mib=800)


def test_region_of_a_job_is_ordinary_memory_beside_the_pools_and_counts_once(
    node: Node, pools: Pools, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(shared_region, "PLACE", tmp_path / "shm")
    node.settings = dataclasses.replace(node.settings, shares_regions=True)
    pools.set(0, 400)
    plain = {"vcpu_cores": "", "numa": "off"}
    present(node, count=2, ram_mib=400, shared_mib=64, **plain)
    node_mib = CELLS * MIB - 800 - 10  # that are in no pool, and not the hypervisor's
    left = node_mib - 2 * 400 - 64
    with pytest.raises(SiteFault, match=f"MiB of ordinary memory: {left} MiB are free"):
        present(node, ram_mib=left + 1, job_id=OTHER, **plain)
    with pytest.raises(SiteFault, match=f"{left + 1} MiB of ordinary memory: {left} MiB are free"):
        present(node, ram_mib=left - 31, shared_mib=32, job_id=OTHER, **plain)
    present(node, ram_mib=left - 32, shared_mib=32, job_id=OTHER, **plain)
    with pytest.raises(SiteFault, match="MiB of ordinary memory: 0 MiB are free"):
        present(node, (0, 1, 2, 3), hugepages="2M", shared_mib=1, job_id="9.head")
    present(node, (0, 1, 2, 3), hugepages="2M", job_id="9.head")


def test_memory_of_a_cell_is_promised_once(node: Node) -> None:
    present(node, (0, 1), vcpus=1, ram_mib=700)
    with pytest.raises(SiteFault, match="400 MiB of ordinary memory in NUMA cell 0: 324 MiB are free"):
        present(node, (2, 3), vcpus=1, ram_mib=400, job_id=OTHER)
    present(node, (4, 5), vcpus=1, ram_mib=400, job_id="9.head")


@pytest.mark.parametrize(
    ("script", "cells", "line"),
    [
        ('[ "$*" = "-S 0 -w 2:256" ] && echo 1', "1:0-1:256", ""),
        ("echo 0", "0:0-1:256", ""),
        ("echo 0-1", "0:0-1:256", ""),
        ("echo 7", "0:0-1:256", "which numad advises, have too few"),
        ("echo none", "0:0-1:256", "without numad: .*printed 'none'"),
        ("echo 1; exit 3", "0:0-1:256", "without numad: .*status 3"),
        ("exec sleep 600", "0:0-1:256", "without numad: .*no answer within"),
        (None, "0:0-1:256", "without numad: .*No such file"),
    ],
)
def test_advice_of_numad_is_followed_where_it_fits_and_costs_no_job_where_it_does_not(
    node: Node,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    script: str | None,
    cells: str,
    line: str,
) -> None:
    monkeypatch.setattr(advice, "NUMAD_S", 1.0 if script and "sleep" in script else 60.0)
    program = tmp_path / "numad"
    if script:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    node.settings = dataclasses.replace(node.settings, numad=program)
    (facts,) = present(node, (0, 1, 2, 4, 5, 6, 7))
    assert facts.cells == cells
    log = capfd.readouterr().err
    assert re.search(line, log) if line else "numad" not in log


def test_numad_is_not_asked_for_guests_that_are_pinned_by_preference(node: Node, tmp_path: pathlib.Path) -> None:
    node.settings = dataclasses.replace(node.settings, numad=tmp_path / "none")
    (facts,) = present(node, vcpu_cores="prefer", numa="off")
    assert facts.vcpu_cores


def test_qemu_takes_huge_pages_on_the_cores_of_their_cells_and_then_leaves_those_of_its_vcpus(node: Node) -> None:
    """qemu fails where none of a cell's cores is among its own ("Setting CPU affinity failed")."""
    (facts,) = present(node, (2, 3, 4, 5), vcpus=3, ram_mib=384, hugepages="2M")
    root = xml_of(node, facts)
    assert len(nodesets(root)) == 2
    assert root.find("cputune/emulatorpin").get("cpuset") == "2-5"  # type: ignore[union-attr]
    assert (node.hypervisor.place / f"{facts.name}.others").read_text() == facts.other_cores == "2"


def test_guest_of_ordinary_pages_never_runs_other_threads_on_cores_of_vcpus(node: Node) -> None:
    (facts,) = present(node, (2, 3, 4, 5), vcpus=3, ram_mib=384)
    assert xml_of(node, facts).find("cputune/emulatorpin").get("cpuset") == facts.other_cores  # type: ignore[union-attr]
    assert not (node.hypervisor.place / f"{facts.name}.others").exists()


def test_cell_without_memory_has_no_huge_pages(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def half() -> ET.Element:
        root = capabilities()
        root.find("host/topology/cells/cell/memory").text = "0"  # type: ignore[union-attr]
        return root

    monkeypatch.setattr(Connection, "host_capabilities", staticmethod(half))
    with pytest.raises(UserFault, match="cell of its cores has no memory"):
        present(node, (0, 1, 2), hugepages="2M")
    (facts,) = present(node, (0, 1, 2), hugepages="auto", job_id=OTHER)
    assert (facts.pages, facts.cells) == ("", "1:0-1:256")
