# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of guests: the kernel's figures for each, disks when libvirt answers, and nobody waits for a hung qemu."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import client
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import guest_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import process_figures
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.telemetry import (
    energy,
    sample_file,
    sampler,
    textfile,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import series

from tests.unit.exposition import check_metrics

if t.TYPE_CHECKING:
    from ..conftest import Node

KEY = "7.head.1"
PATIENCE_S = 60


class Libvirt:
    """Tells figures of disks; a guest that hangs answers when it is let go."""

    def __init__(self, *hanging: str) -> None:
        self.hanging = set(hanging)
        self.go_on = threading.Event()
        self.asked: list[str] = []

    def figures(self, names: t.Collection[str], within_s: float | None) -> dict[str, dict[str, int]]:
        assert within_s is None
        (name,) = names
        self.asked.append(name)
        if name in self.hanging:
            self.go_on.wait(PATIENCE_S)
        return {name: {"block.0.rd.bytes": 100, "block.1.rd.bytes": 11, "block.0.wr.bytes": 7, "block.count": 2}}


class World:
    """A node with guests whose process is this test's own, and a sampler."""

    def take_line(self, text: str, level: str = "info", component: str = "") -> None:
        if level != "trace":
            self.log.append(text)

    def __init__(self, node: Node, tmp_path: pathlib.Path, count: int, **settings: t.Any) -> None:
        self.node, self.log = node, list[str]()
        node.patch.setattr(process_figures, "read_pid", lambda _name: os.getpid())
        node.patch.setattr(sampler, "SYS_NET", tmp_path / "net")
        (tmp_path / "metrics").mkdir()
        report = {"sample_s": 30, "metrics": "both", "metrics_dir": tmp_path / "metrics", **settings}
        self.settings = node.settings = dataclasses.replace(node.settings, **report)
        self.part = node.part(count)
        self.guests = []
        for rank in range(count):
            path = self.settings.start_dir("7.head", 1) / f"vcn1-{rank + 1}"
            path.mkdir(parents=True)
            facts = guest_file.GuestFile(rank, rank + 1, path.name, "52:54:00:01:02:03", "u", "t", 1001, "d")
            guest_file.write_guest_file(path, facts)
            statistics = tmp_path / "net" / f"vtq{rank + 1}" / "statistics"
            statistics.mkdir(parents=True)
            (statistics / "rx_bytes").write_text("500\n")
            (statistics / "tx_bytes").write_text("600\n")
            self.guests.append(path)
        self.sampler = sampler.Sampler(self.part, self.settings, self.guests, self.take_line)

    def sample(self, libvirt: Libvirt | None, lost: t.Collection[str] = (), *, settle: bool = True) -> None:
        """One round, in which as much time passes as must."""
        self.sampler._next_at = 0.0
        self.sampler.run_due(libvirt, lost)
        until = time.monotonic() + PATIENCE_S
        while settle and libvirt and self.sampler._blocks._asked - libvirt.hanging:
            assert time.monotonic() < until
        self.sampler._take_at = 0.0
        self.sampler.run_due(libvirt, lost)

    @property
    def samples(self) -> list[dict[str, t.Any]]:
        lines = (self.settings.record_dir("7.head", 1) / layout.SAMPLES).read_text().splitlines()
        return [json.loads(line) for line in lines[1:]]

    @property
    def file(self) -> pathlib.Path:
        return self.settings.metrics_dir / f"vtorque_{KEY}.prom"


@pytest.fixture
def world(node: Node, tmp_path: pathlib.Path) -> World:
    return World(node, tmp_path, 2)


def test_sample_has_the_figures_of_each_guest(world: World) -> None:
    world.sample(Libvirt())
    (sample,) = world.samples
    assert sorted(sample["guests"]) == ["vcn1-1", "vcn1-2"]
    figures = dict(zip(series.FIGURES, sample["guests"]["vcn1-2"], strict=True))
    assert figures["cpu_s"] > 0
    assert figures["memory_bytes"] > 1 << 20
    assert {key: figures[key] for key in ("read_bytes", "written_bytes", "received_bytes", "sent_bytes")} == {
        "read_bytes": 111, "written_bytes": 7, "received_bytes": 600, "sent_bytes": 500,
    }  # fmt: skip


def test_file_for_prometheus_has_closed_labels_and_no_text_of_the_user(world: World) -> None:
    world.sample(Libvirt())
    found = check_metrics(world.file.read_text())
    assert set(found) <= set(textfile.METRICS)
    for metric, samples in found.items():
        allowed = {"jobid", "rank", "node"} | ({"user", "image", "tag"} if metric.endswith("_info") else set())
        assert len(samples) == 2
        assert all({name for name, _value in labels} == allowed for labels in samples)
    labels = frozenset({("jobid", "7.head"), ("rank", "1"), ("node", "cn1")})
    assert found["vtorque_guest_block_read_bytes_total"][labels] == 111
    assert found["vtorque_guest_vcpus"][labels] == 2
    (info,) = [dict(one) for one in found["vtorque_guest_info"] if ("rank", "0") in one]
    assert (info["user"], info["image"], info["tag"]) == ("alice", "tiny", "snapTask-alice-7.head")


def test_path_of_a_users_own_image_is_no_label(node: Node, tmp_path: pathlib.Path) -> None:
    world = World(node, tmp_path, 1)
    part = node.part(1, image='/home/alice/a"b.img')
    world.sampler = sampler.Sampler(part, world.settings, world.guests, world.take_line)
    world.sample(Libvirt())
    assert 'image="own"' in world.file.read_text()


def test_qemu_that_hangs_delays_no_sample_and_no_figures_of_other_guests(node: Node, tmp_path: pathlib.Path) -> None:
    world, libvirt = World(node, tmp_path, 5), Libvirt("vcn1-2")
    began = time.monotonic()
    for _round in range(4):
        world.sample(libvirt)
    assert time.monotonic() - began < PATIENCE_S / 2
    last = world.samples[-1]["guests"]
    assert [last[f"vcn1-{slot}"][3] for slot in range(1, 6)] == [111, None, 111, 111, 111]
    assert last["vcn1-2"][0] > 0
    assert last["vcn1-2"][5] == 600
    assert libvirt.asked.count("vcn1-2") == 1, "who owes an answer is not asked again"
    libvirt.go_on.set()
    libvirt.hanging.clear()
    world.sample(libvirt)
    world.sample(libvirt)
    assert world.samples[-1]["guests"]["vcn1-2"][3] == 111


def test_many_qemus_that_hang_leave_calls_of_libvirt_for_an_end(node: Node, tmp_path: pathlib.Path) -> None:
    names = [f"vcn1-{slot}" for slot in range(1, 9)]
    world, libvirt = World(node, tmp_path, 8), Libvirt(*names)
    for _round in range(3):
        world.sample(libvirt, settle=False)
    until = time.monotonic() + PATIENCE_S
    while len(libvirt.asked) < sampler.MAX_OPEN_QUERIES:
        assert time.monotonic() < until
    assert len(libvirt.asked) == sampler.MAX_OPEN_QUERIES
    assert len(world.samples) == 3
    libvirt.go_on.set()


def test_without_libvirt_the_kernels_figures_go_on(world: World) -> None:
    world.sample(None)
    assert world.samples[0]["guests"]["vcn1-1"][3:] == [None, None, 600, 500]


def test_lost_guest_is_sampled_no_more(world: World) -> None:
    world.sample(Libvirt(), lost=["vcn1-1"])
    assert sorted(world.samples[0]["guests"]) == ["vcn1-2"]


def rapl(world: World, tmp_path: pathlib.Path) -> t.Callable[[int, int], None]:
    """Give the node a counter of energy; returns what sets it, in joules, and the node's busy seconds."""
    zone = tmp_path / "powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "10000000000")):
        (zone / name).write_text(text)

    def count(joules: int, busy_s: int) -> None:
        (zone / "energy_uj").write_text(f"{joules * 1_000_000}")
        (tmp_path / "stat").write_text(f"cpu  {busy_s * sampler.TICKS_S} 0 0 5000 700 0 0 0 0 0\n")

    count(0, 0)
    world.sampler._energy = energy.EnergyMeter(tmp_path / "powercap", tmp_path / "stat")
    return count


def use(world: World, **cpu_s: float) -> None:
    """These are the processes now, with the processor time that they have used."""
    pids = {f"vcn1-{name[-1]}": 1000 + number for number, name in enumerate(cpu_s)}
    by_pid = {
        1000 + number: process_figures.ProcessFigures(used, 0.5, 1 << 20, 1 << 20)
        for number, used in enumerate(cpu_s.values())
    }
    world.node.patch.setattr(process_figures, "read_pid", pids.get)
    world.node.patch.setattr(process_figures, "read_figures", by_pid.get)


def test_sums_of_a_guest_that_came_back_from_the_disk_go_on(world: World, tmp_path: pathlib.Path) -> None:
    """Its process and its network device are new ones, and count from 0."""
    statistics = tmp_path / "net/vtq1/statistics"
    use(world, guest_1=100.0, guest_2=10.0)
    world.sample(None)
    world.sample(None, lost=["vcn1-1"])
    use(world, guest_1=2.0, guest_2=20.0)
    (statistics / "tx_bytes").write_text("7\n")
    world.sample(None)
    use(world, guest_1=5.0, guest_2=20.0)
    world.sample(None)
    assert [one["guests"].get("vcn1-1", [None])[0] for one in world.samples] == [100.0, None, 102.0, 105.0]
    assert world.samples[-1]["guests"]["vcn1-1"][5] == 607
    assert world.samples[-1]["guests"]["vcn1-1"][2] == 1 << 20, "memory is no sum"
    assert [one["guests"]["vcn1-2"][0] for one in world.samples] == [10.0, 10.0, 20.0, 20.0]


def test_share_of_energy_goes_on_after_a_guest_was_saved_or_lost(world: World, tmp_path: pathlib.Path) -> None:
    count = rapl(world, tmp_path)
    use(world, guest_1=100.0, guest_2=100.0)
    count(10, 400)
    world.sample(None)
    use(world, guest_2=110.0)
    count(20, 410)
    world.sample(None, lost=["vcn1-1"])
    use(world, guest_1=10.0, guest_2=110.0)
    count(30, 420)
    world.sample(None)
    assert [one["energy"] for one in world.samples] == [[10.0, 5.0], [20.0, 15.0], [30.0, 25.0]]


def test_energy_of_a_suspended_job_is_another_jobs(world: World, tmp_path: pathlib.Path) -> None:
    count = rapl(world, tmp_path)
    use(world, guest_1=1.0, guest_2=1.0)
    world.sample(None)
    count(500, 100)
    world.sampler._next_at = 0.0
    world.sampler.run_due(None, suspended=True)
    world.sampler._take_at = 0.0
    world.sampler.run_due(None, suspended=True)
    count(507, 200)
    world.sample(None)
    assert [one["energy"][0] for one in world.samples] == [0.0, 0.0, 7.0]


def test_end_takes_a_last_sample_and_takes_the_file_away(world: World) -> None:
    world.sample(Libvirt())
    world.sampler.finish()
    assert len(world.samples) == 2
    assert not world.file.exists()
    assert world.sampler.due_s() == float("inf")


@pytest.mark.parametrize("off", [{"sample_s": 0}, {"metrics": "off"}])
def test_site_that_wants_no_figures_gets_none(node: Node, tmp_path: pathlib.Path, off: dict[str, t.Any]) -> None:
    world = World(node, tmp_path, 1, **off)
    libvirt = Libvirt()
    world.sample(libvirt)
    world.sampler.finish()
    assert libvirt.asked == []
    assert not world.settings.record_dir("7.head", 1).exists()
    assert list(world.settings.metrics_dir.iterdir()) == []
    assert world.sampler.due_s() == float("inf")


@pytest.mark.parametrize(("metrics", "record", "file"), [("record", True, False), ("textfile", False, True)])
def test_figures_go_where_the_site_wants_them(
    node: Node, tmp_path: pathlib.Path, metrics: str, record: bool, file: bool
) -> None:
    world = World(node, tmp_path, 1, metrics=metrics)
    world.sample(Libvirt())
    assert (world.settings.record_dir("7.head", 1) / layout.SAMPLES).exists() is record
    assert world.file.exists() is file


def test_directory_that_is_missing_is_said_once_and_the_record_goes_on(node: Node, tmp_path: pathlib.Path) -> None:
    world = World(node, tmp_path, 1, metrics_dir=tmp_path / "away")
    for _round in range(3):
        world.sample(Libvirt())
    assert len(world.log) == 1
    assert "away" in world.log[0]
    assert len(world.samples) == 3


def test_fault_of_the_sampler_ends_samples_and_nothing_else(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.sample(Libvirt())
    monkeypatch.setattr(world.sampler, "_read", lambda _guest: 1 / 0)
    world.sample(Libvirt())
    assert world.log == ["the guests are not sampled any more: ZeroDivisionError: division by zero"]
    assert not world.file.exists()
    world.sampler.finish()


def test_energy_is_measured_where_the_job_is_alone_and_estimated_elsewhere(
    world: World, tmp_path: pathlib.Path
) -> None:
    zone = tmp_path / "powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "10000000"), ("energy_uj", "1000")):
        (zone / name).write_text(text)
    world.sampler._energy = energy.EnergyMeter(tmp_path / "powercap")
    (zone / "energy_uj").write_text("5001000")
    world.sample(None)
    found = check_metrics(world.file.read_text())["vtorque_job_energy_joules_total"]
    assert list(found) == [frozenset({("jobid", "7.head"), ("node", "cn1"), ("source", "estimated")})]
    record = world.settings.record_dir("7.head", 1)
    (record / layout.ALONE).write_text('{"others": []}')
    world.sample(None)
    found = check_metrics(world.file.read_text())["vtorque_job_energy_joules_total"]
    assert found == {frozenset({("jobid", "7.head"), ("node", "cn1"), ("source", "measured")}): 5.0}


@pytest.mark.parametrize(("every_s", "reads"), [(300, True), (301, False)])
def test_energy_is_not_read_where_its_counters_may_wrap_unseen(
    node: Node, tmp_path: pathlib.Path, every_s: int, reads: bool
) -> None:
    assert (World(node, tmp_path, 1, sample_s=every_s).sampler._energy is not None) is reads


def test_sample_of_four_guests_takes_few_calls(node: Node, tmp_path: pathlib.Path) -> None:
    """A thousandth of a core, at 30 s between samples, is 30 ms: time for ten times as many calls."""
    world, libvirt = World(node, tmp_path, 4), Libvirt()
    world.sample(libvirt)
    events: collections.Counter[str] = collections.Counter()
    sys.setprofile(lambda _frame, event, _argument: events.update([event]))
    try:
        world.sample(libvirt)
    finally:
        sys.setprofile(None)
    assert 100 < events["call"] + events["c_call"] < 10_000


MEMORY = """
import pathlib, re, sys
import pytest
from tests.unit.plugins.module_utils.node.conftest import Node
from tests.unit.plugins.module_utils.node.telemetry import test_sampler as here

def private_kib():
    rollup = pathlib.Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"^Pss_Anon: +([0-9]+) kB", rollup, re.MULTILINE)[1])

place = pathlib.Path(sys.argv[1])
node, libvirt = Node(place, pytest.MonkeyPatch()), here.Libvirt()
found = [private_kib()]
world = here.World(node, place, 4)
for number in range(int(sys.argv[2])):
    world.sample(libvirt)
    if number in (0, 39):
        found.append(private_kib())
print(*found, private_kib())
"""


def test_sampler_needs_less_than_two_mib_and_does_not_grow(tmp_path: pathlib.Path) -> None:
    """Of a process of its own: what it has for itself, without what it shares with others."""
    paths = ":".join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path), "240"], capture_output=True, text=True, check=False,
        cwd=pathlib.Path(__file__).resolve().parents[6], env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    without, first, early, late = map(int, done.stdout.split())
    assert 0 < first - without < 2048
    assert late - without < 2048
    assert late - early < 256, "what 200 samples leave behind"


def test_sample_adds_up_all_cards_of_a_guest(world: World, tmp_path: pathlib.Path) -> None:
    for card, text in (("vtq2n1", "40\n"), ("vtq2n3", "2\n"), ("vtq2n2", "none\n"), ("vtq12", "9\n")):
        statistics = tmp_path / "net" / card / "statistics"
        statistics.mkdir(parents=True)
        (statistics / "rx_bytes").write_text(text)
        (statistics / "tx_bytes").write_text("0\n")
    world.sample(Libvirt())
    (sample,) = world.samples
    received, sent = series.FIGURES.index("received_bytes"), series.FIGURES.index("sent_bytes")
    assert [sample["guests"][name][sent] for name in ("vcn1-1", "vcn1-2")] == [500, 542]
    assert [sample["guests"][name][received] for name in ("vcn1-1", "vcn1-2")] == [600, 600]


def test_worker_samples_its_guests_until_the_start_is_over(node: Node, tmp_path: pathlib.Path) -> None:
    """As a whole: the worker is there anyway, and its end takes the last sample and the file away."""
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    node.patch.setattr(process_figures, "read_pid", lambda _name: os.getpid())
    node.settings = dataclasses.replace(node.settings, sample_s=3600, metrics="both", metrics_dir=metrics)
    node.open_log()
    client.request_guests(node.part(2), node.settings, node.soon())
    node.wait_for_file(metrics / f"vtorque_{KEY}.prom")
    found = check_metrics((metrics / f"vtorque_{KEY}.prom").read_text())
    assert len(found["vtorque_guest_memory_bytes"]) == 2
    removed = node.absent()
    assert "domain vcn1-1" in removed
    assert sorted(path.name for path in metrics.iterdir()) == ["vtorque_node.prom"]
    assert list(check_metrics((metrics / "vtorque_node.prom").read_text())["vtorque_guests"].values()) == [0]
    one = sample_file.read_series(node.settings.record_dir("7.head", 1), "cn1")
    assert one is not None
    assert [len(series.read_points(guest.points)) for guest in one.guests] == [2, 2]


def test_end_of_a_start_whose_worker_was_killed_takes_its_file_away(node: Node, tmp_path: pathlib.Path) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    node.settings = dataclasses.replace(node.settings, metrics="textfile", metrics_dir=metrics)
    node.present()
    textfile.write(KEY, "figures\n", node.settings)
    assert f"metrics of {KEY}" in node.absent()
    assert [path.name for path in metrics.iterdir()] == ["vtorque_node.prom"]
