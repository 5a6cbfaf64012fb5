# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Energy by the processors' counters: whole processors and memory, over a wrap, and the guests' share of it."""

from __future__ import annotations

import pathlib

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.telemetry import energy

ZONES = {
    "intel-rapl:0": ("package-0", 900),
    "intel-rapl:0:0": ("core", 500),
    "intel-rapl:0:1": ("dram", 100),
    "intel-rapl:1": ("psys", 5000),
    "intel-rapl-mmio:0": ("package-0", 900),
}


def set_counter(powercap: pathlib.Path, zone: str, value: int) -> None:
    (powercap / zone / "energy_uj").write_text(f"{value}\n")


def set_busy(stat: pathlib.Path, ticks: int) -> None:
    stat.write_text(f"cpu  {ticks} 0 0 5000 700 0 0 0 {ticks} 0\ncpu0 1 1 1\n")


def make_meter(tmp_path: pathlib.Path) -> energy.EnergyMeter:
    for zone, (name, value) in ZONES.items():
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(f"{name}\n")
        (tmp_path / zone / "max_energy_range_uj").write_text("1000000000\n")
        set_counter(tmp_path, zone, value)
    set_busy(tmp_path / "stat", 100)
    return energy.EnergyMeter(tmp_path, tmp_path / "stat")


def test_node_counts_processors_and_memory_but_no_part_twice(tmp_path: pathlib.Path) -> None:
    meter = make_meter(tmp_path)
    for zone, (_name, value) in ZONES.items():
        set_counter(tmp_path, zone, value + 3_000_000)
    set_busy(tmp_path / "stat", 300)
    meter.read(1.0, 100)
    assert (meter.node_j, meter.share_j) == (6.0, 3.0)  # a second of two that the node worked


def test_counter_that_wraps_goes_on(tmp_path: pathlib.Path) -> None:
    meter = make_meter(tmp_path)
    set_counter(tmp_path, "intel-rapl:0", 999_999_900)
    meter.read(0.0, 100)
    set_counter(tmp_path, "intel-rapl:0", 1_000_000 - 100)
    meter.read(0.0, 100)
    assert meter.node_j is not None
    assert round(meter.node_j, 6) == round((999_999_900 - 900 + 1_000_000) / 1e6, 6)


def test_share_is_never_more_than_the_node(tmp_path: pathlib.Path) -> None:
    meter = make_meter(tmp_path)
    set_counter(tmp_path, "intel-rapl:0", 2_000_900)
    set_busy(tmp_path / "stat", 101)
    meter.read(50.0, 100)
    assert meter.share_j == meter.node_j == 2.0


def test_node_without_counters_knows_no_energy(tmp_path: pathlib.Path) -> None:
    meter = energy.EnergyMeter(tmp_path / "powercap", tmp_path / "stat")
    meter.read(5.0, 100)
    assert (meter.node_j, meter.share_j) == (None, None)


def test_energy_while_the_guests_stand_still_is_nobodys_of_them(tmp_path: pathlib.Path) -> None:
    meter = make_meter(tmp_path)
    set_counter(tmp_path, "intel-rapl:0", 5_000_900)
    meter.read(0.0, 100, suspended=True)
    assert meter.node_j == 0.0
    set_counter(tmp_path, "intel-rapl:0", 7_000_900)
    meter.read(0.0, 100)
    assert meter.node_j == 2.0
