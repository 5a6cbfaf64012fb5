# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vsub --dry-run` where the front end remembers what nodes have: cores, cells, pages and devices as they would be."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import cpus
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import topologies
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import node_topology

from . import test_vsub
from .test_vsub import Site

FIXTURE = pathlib.Path(__file__).resolve().parents[4] / "fixtures/topology/gn1.json"
REMEMBERING = """
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import preview
preview.STATE_DIR = pathlib.Path(sys.argv[1]).parent / "state"
sys.exit("""
CLASSES = ["gpu 0000:3b:00.0 0000:5e:00.0 hosts=n1", "nic 0000:af:00.0 kind=nic", "nvme 0000:d8:00.0 resource=disks"]


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose front end remembers what its one node has: two cells of eight cores with two threads each."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(test_vsub, "DRIVER", test_vsub.DRIVER.replace("\nsys.exit(", REMEMBERING))
    found = node_topology.topology_from_dict(json.loads(FIXTURE.read_text(encoding="utf-8")))
    topologies.write_topology(dataclasses.replace(found, node="n1"), tmp_path / "state")
    here = Site(tmp_path)
    here.configure(host_os_core_count=2, pci_classes=CLASSES)
    here.script(b"true\n")
    return here


def placement(site: Site, *arguments: str) -> dict[str, t.Any]:
    done = site.vsub("--dry-run", "--query", "placement", *arguments, "job.sh")
    assert done.status == 0, done.err
    found: dict[str, t.Any] = json.loads(done.out)
    return found


def test_dry_run_shows_cores_cells_pages_and_devices_on_the_first_node_that_fits(site: Site) -> None:
    done = site.vsub("--dry-run", "-vm", "vcpu_pinning=true,vcpus=4,ram=4G,pci=gpu:1,vms_per_node=2", "job.sh")
    lines = done.out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("on n1, the first node that fits"))
    first, second = lines[at + 1 : at + 3]
    assert first == (
        "  guest 1: vCPU 0 on 1, vCPU 1 on 17, vCPU 2 on 2, vCPU 3 on 18, other threads on 0,16; cell 0;"
        " 4G in ordinary pages; gpu 0000:3b:00.0 in cell 0"
    )
    assert second.startswith("  guest 2: vCPU 0 on ")
    assert second.endswith("; 4G in ordinary pages; gpu 0000:5e:00.0 in cell 0")
    of_vcpus = [cores for line in (first, second) for cores in re.findall(r"vCPU \d+ on (\d+)", line)]
    assert len(set(of_vcpus)) == 8
    assert done.seen is None


def test_dry_run_of_a_guest_larger_than_a_cell_shows_both_cells(site: Site) -> None:
    found = placement(site, "-vm", "vcpu_pinning=true,vcpus=20")
    assert (found["node"], found["problem"], found["guests"][0]["cells"]) == ("n1", "", [0, 1])


def test_dry_run_without_pinning_shows_the_cores_that_all_threads_share(site: Site) -> None:
    guest = placement(site, "-vm", "vcpu_pinning=false")["guests"][0]
    assert (guest["vcpu_cores"], guest["other_cores"], guest["cells"]) == ([], "2-31", [0, 1])
    site.configure(host_os_core_count=2, pbs_exclusive_node_alloc=False, kill_user_processes_after_job=False)
    guest = placement(site, "-vm", "vcpu_pinning=false")["guests"][0]
    assert guest["other_cores"] == "0-3"


def test_dry_run_of_cores_by_preference_shows_no_huge_pages(site: Site) -> None:
    """Cells and pages of their own are for guests that must have their cores, as the job's plan has it."""
    site.configure(host_os_core_count=2, hugepages_default="auto")
    (guest,) = placement(site, "-vm", "vcpus=4,ram=4G")["guests"]
    assert len(guest["vcpu_cores"]) == 4
    assert guest["memory"] == "4G in ordinary pages"
    (guest,) = placement(site, "-vm", "vcpus=4,ram=4G,vcpu_pinning=true")["guests"]
    assert guest["memory"].startswith("4G in huge pages (auto")


def test_dry_run_follows_the_users_map(site: Site) -> None:
    (site.here / "pins").write_text("0: 3\n1: 5\nemulator: 2\n")
    guest = placement(site, "-vm", f"vcpu_pinning={site.here}/pins,vcpus=2")["guests"][0]
    assert (guest["vcpu_cores"], guest["other_cores"]) == (["3", "5"], "2")


def test_dry_run_shows_cores_for_virtual_io_and_how_many_are_requested(site: Site) -> None:
    site.configure(host_os_core_count=1, iocm_enabled=True)
    wish = "vcpus=4,ram=4G,iocm=true,iocm_min_cores=2,iocm_max_cores=3"
    done = site.vsub("--dry-run", "-vm", f"vcpu_pinning=true,{wish}", "job.sh")
    (guest,) = (line for line in done.out.splitlines() if line.startswith("  guest 1:"))
    io = re.search(r"other threads on (\S+) \(virtual I/O: at least 2 of them\)", guest)
    assert io is not None, guest
    assert not set(cpus.read(io[1])) & set(map(int, re.findall(r"vCPU \d+ on (\d+)", guest)))
    sums = "(cores on each node: 4 vcpus + 1 core for the host + {})"
    assert sums.format("3 cores for virtual I/O (iocm_max_cores)") in done.out
    done = site.vsub("--dry-run", "-vm", f"vcpu_pinning=false,{wish}", "job.sh")
    assert sums.format("2 cores for virtual I/O (iocm_min_cores)") in done.out
    floating = placement(site, "-vm", f"vcpu_pinning=false,{wish}")["guests"][0]
    assert (floating["io_least"], len(set(floating["vcpu_cores"]))) == (2, 1)


def test_dry_run_shows_no_cores_for_virtual_io_on_a_node_without_them(site: Site) -> None:
    site.configure(host_os_core_count=1, iocm_enabled=True, iocm_nodes="n9")
    found = placement(site, "-vm", "vcpus=4,ram=4G,iocm=true")
    assert found["guests"][0]["io_least"] == 0
    assert "n1 has no cores for virtual I/O (iocm_nodes)" in found["problem"]


@pytest.mark.parametrize(
    ("arguments", "guests", "problem"),
    [
        (("-vm", "vcpu_pinning=true"), 0, "vcpu_pinning: the guests of this job: are too many"),
        ((), 1, "vCPUs share cores: its guests are too many"),
    ],
)
def test_dry_run_says_what_could_not_be_placed(
    site: Site, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], guests: int, problem: str
) -> None:
    refusing = """
def refuse(*_all):
    raise preview.UserFault("vcpu_pinning: the guests of this job", "are too many")
preview.assign = refuse
sys.exit("""
    monkeypatch.setattr(test_vsub, "DRIVER", test_vsub.DRIVER.replace("\nsys.exit(", refusing))
    found = placement(site, *arguments)
    assert (len(found["guests"]), found["problem"]) == (guests, problem)


@pytest.mark.parametrize(
    ("wish", "devices", "problem"),
    [
        ("pci=0000:5e:00.0", ["gpu 0000:5e:00.0 in cell 0"], ""),
        ("pci=gpu:2", ["gpu 0000:3b:00.0 in cell 0", "gpu 0000:5e:00.0 in cell 0"], ""),
        ("pci=nic:1", [], "n1 has no nic:1 left for each guest"),
        ("pci=nvme:1", [], "n1 has no nvme:1 left for each guest"),
    ],
)
def test_dry_run_hands_out_devices_that_are_well(site: Site, wish: str, devices: list[str], problem: str) -> None:
    found = placement(site, "-vm", wish)
    assert (found["guests"][0]["devices"], found["problem"]) == (devices, problem)


def test_dry_run_names_whose_word_decides_which_device(site: Site) -> None:
    site.configure(pci_classes=["gpu 0000:3b:00.0 resource=gpus"])
    assert placement(site, "-vm", "pci=gpu:1")["guests"][0]["devices"] == [
        "gpu 0000:3b:00.0 in cell 0, or another that the batch system gives (gpus)"
    ]


@pytest.mark.parametrize("gone", ["the directory", "the node is too small"])
def test_dry_run_shows_no_place_where_nothing_fitting_is_remembered(site: Site, gone: str) -> None:
    path = site.here / "state/topology/n1.json"
    found = topologies.read_topology("n1", site.here / "state")
    assert found is not None
    path.unlink()
    if gone == "the node is too small":
        topologies.write_topology(dataclasses.replace(found, cells=found.cells[:1]), site.here / "state")
    done = site.vsub("--dry-run", "-vm", "vcpus=20", "job.sh")
    assert done.status == 0
    assert "the first node that fits" not in done.out


def test_dry_run_takes_any_remembered_node_where_the_server_names_none(site: Site) -> None:
    (site.here / "pbsnodes").write_text("#!/bin/sh\nexit 1\n")
    assert placement(site, "-vm", "vcpus=2")["node"] == "n1"
