# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arithmetic of the figures, and the form of their file."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.bench import warm
from tests.bench.figures import JOB, WARM, Figure, Pair, compare, flat, keep, of_guests, of_nodes, ratios

RUNS = {figure.key: [3.0, 1.0, 2.0] for figure in JOB}


def test_each_job_is_held_against_the_boot_of_its_own_pair() -> None:
    """Not against the median of all boots: the machine may have been slower for both."""
    assert compare([Pair(4.0, 5.0), Pair(8.0, 10.0)]) == {
        "boot_s": [4.0, 8.0],
        "overhead_s": [1.0, 2.0],
        "overhead_ratio": [1.25, 1.25],
    }


def test_file_holds_each_median_and_beside_it_the_runs() -> None:
    """Flat: `<key>` and `<key>_runs`, in the order in which they were made."""
    form = flat(JOB, RUNS)
    assert form["boot_s"] == 2.0
    assert form["boot_s_runs"] == [3.0, 1.0, 2.0]
    assert set(form) == {name for figure in JOB for name in (figure.key, f"{figure.key}_runs")}


def test_guests_are_held_against_as_many_bare_boots_without_what_one_job_adds() -> None:
    """What a job of one guest adds is paid once: it is no cost of the further guests."""
    found = ratios({1: [Pair(4.0, 5.0), Pair(4.0, 5.0)], 4: [Pair(10.0, 12.0), Pair(20.0, 20.0)]})
    assert found == {"guests_1_ratio": [1.0, 1.0], "guests_4_ratio": [1.1, 0.95]}


def test_warm_start_is_held_against_the_cold_one_of_its_own_pair() -> None:
    """Under the keys that issue and manual name, for a Debian guest with its name before them."""
    pairs = [(warm.Start(20.0, 21.0), warm.Start(3.0, 3.5)), (warm.Start(40.0, 42.0), warm.Start(4.0, 5.0))]
    runs = warm.figures_of(pairs, [6.0, 5.0], 30.0)
    assert runs == {
        "warm_ready_s": [3.0, 4.0], "warm_ratio": [0.15, 0.1], "warm_first_line_s": [3.5, 5.0],
        "warm_4_ready_s": [6.0, 5.0], "warm_make_ratio": [1.5, 0.75],
    }  # fmt: skip
    form = flat(WARM, runs, "debian_")
    assert {"debian_warm_ready_s", "debian_warm_ratio", "debian_warm_first_line_s", "debian_warm_4_ready_s"} < set(form)


def test_keys_of_many_nodes_and_guests_are_flat_with_their_units() -> None:
    """Time, processor time and a ratio for each number; the targets stand where they are promised."""
    nodes = {figure.key: figure for figure in of_nodes((1, 8, 32))}
    assert list(nodes) == [
        *(f"nodes_{count}_overhead_s" for count in (1, 8, 32)),
        *(f"nodes_{count}_ms_cpu_per_node_s" for count in (1, 8, 32)),
        "nodes_32_ms_peak_mib",
    ]
    assert [nodes[f"nodes_{count}_overhead_s"].target for count in (1, 8, 32)] == [None, 4.0, 12.0]
    assert nodes["nodes_32_ms_cpu_per_node_s"].formatted(0.15) == "0.150 s"
    assert [figure.key for figure in of_guests((1, 2))] == ["guests_1_ratio", "guests_2_ratio"]
    assert {figure.target for figure in of_guests((1, 2))} == {1.1}


@pytest.mark.parametrize("missing", [None, []])
def test_a_figure_without_a_run_is_an_error(missing: list[float] | None) -> None:
    """A file that is not whole is not written."""
    runs = {key: values for key, values in RUNS.items() if key != "epilogue_s"}
    if missing is not None:
        runs["epilogue_s"] = missing
    with pytest.raises(ValueError, match="epilogue_s was not measured"):
        flat(JOB, runs)


def test_figures_of_one_guest_leave_those_of_another(tmp_path: pathlib.Path) -> None:
    """`make bench GUEST=debian` adds to the file; done again it replaces its own."""
    path = tmp_path / "build/bench.json"
    keep(path, flat(JOB, RUNS))
    keep(path, flat(JOB, {**RUNS, "boot_s": [40.0]}, "debian_"))
    keep(path, flat(JOB, {**RUNS, "boot_s": [50.0]}, "debian_"))
    known = json.loads(path.read_text(encoding="utf-8"))
    assert (known["boot_s"], known["debian_boot_s"], known["debian_boot_s_runs"]) == (2.0, 50.0, [50.0])
    assert len(known) == 4 * len(JOB)


@pytest.mark.parametrize(
    ("key", "digits", "printed"),
    [("boot_s", 2, "1.24 s"), ("overhead_ratio", 1, "1.2"), ("ms_peak_mib", 0, "1 MiB")],
)
def test_a_value_is_shown_with_the_unit_of_its_key(key: str, digits: int, printed: str) -> None:
    """The unit is the end of the key; a ratio has none."""
    assert Figure(key, "words", None, digits).formatted(1.2399) == printed
