# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured of Slurm beside Torque."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

import pytest

from tests.bench import slurm, slurm_nodes
from tests.bench.figures import SLURM, Pair, flat, of_slurm_nodes
from tests.bench.inside import slurm_job_watch
from tests.bench.measure import Guest
from tests.bench.recorded import read_slurm_call
from tests.bench.site import Site, Trouble


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_hooks_are_called_as_slurmd_called_them_for_a_job_without_our_comment(name: str) -> None:
    call = read_slurm_call(name)
    assert call.argv == (f"/etc/vtorque/slurm/{name}",)
    assert call.environment["SLURMD_NODENAME"] == "cn1"
    assert "PATH" not in call.environment
    assert not any(value.startswith("vtorque:") for value in call.environment.values())


def test_each_figure_is_held_against_torques_of_the_same_turn() -> None:
    jobs = {"torque": [(Pair(4.0, 5.0), 1.0), (Pair(8.0, 10.0), 2.0)], "slurm": [(Pair(4.0, 6.0), 3.0)] * 2}
    found = slurm.compare(jobs, {"torque": [0.1], "slurm": [0.2]}, {"torque": [0.004], "slurm": [0.001]})
    assert found == {
        "slurm_overhead_s": [2.0, 2.0],
        "slurm_overhead_ratio": [1.2, 1.2],
        "slurm_epilogue_s": [3.0, 3.0],
        "slurm_epilogue_ratio": [3.0, 1.5],
        "slurm_submit_extra_s": [0.2],
        "slurm_submit_extra_ratio": [2.0],
        "slurm_bare_job_cpu_s": [0.001],
        "slurm_bare_job_cpu_ratio": [0.25],
    }
    assert set(flat(SLURM, found)) == {name for key in found for name in (key, f"{key}_runs")}


def test_first_line_is_the_first_write_to_the_file_of_a_job(tmp_path: pathlib.Path) -> None:
    """What else is written beside it, and its empty file, are none."""
    import inotify_simple

    (tmp_path / "bench.sh").write_text("text")
    out = tmp_path / "slurm-7.out"

    class Watcher:
        """Plays what happens, a step a read."""

        def __init__(self) -> None:
            self.steps = iter(("bench.sh", "", "begun\n"))

        def read(self) -> list[t.Any]:
            step = next(self.steps)
            if step != "bench.sh":
                out.write_text(step)
            name = step if step == "bench.sh" else out.name
            return [inotify_simple.Event(0, inotify_simple.flags.MODIFY, 0, name)]

    assert slurm_job_watch.first_line(tmp_path, Watcher()) == ("7", out.stat().st_mtime_ns / 1e9)


def test_job_that_was_tried_again_is_no_figure() -> None:
    """Its first line was the reason, before the start that ran."""

    class Watch:
        def line(self) -> t.Any:
            phases = {"prologue": {"began": 400.0}, "epilogue": {"began": 410.0}}
            return {"job": "7", "first_line": 46.0, "over": 412.0, "record": {"phases": phases}}

    class Busy(Site):
        def __init__(self) -> None:
            pass

        @contextlib.contextmanager
        def program(self, *_call: t.Any, **_options: t.Any) -> t.Iterator[t.Any]:
            yield Watch()

        def ask(self, *_call: t.Any, **_options: t.Any) -> t.Any:
            return None

    with pytest.raises(Trouble, match="job 7 was tried again"):
        slurm.slurm_job(Busy(), Guest("tiny", 192, "", pairs=1, watched=1))


def test_starts_over_several_nodes_are_held_against_torques_of_the_same_turn() -> None:
    runs = {count: [{"torque": 2.0, "slurm": 2.1}, {"torque": 1.0, "slurm": 1.2}] for count in slurm_nodes.COUNTS}
    found = slurm_nodes.figures_of(runs)
    assert (found["slurm_nodes_8_overhead_s"], found["slurm_nodes_8_ratio"]) == ([2.1, 1.2], [1.05, 1.2])
    assert set(flat(of_slurm_nodes(slurm_nodes.COUNTS), found)) == {n for key in found for n in (key, f"{key}_runs")}


@pytest.mark.parametrize(
    ("system", "expected"),
    [("slurm", ["--parsable", "-N", "2", "-w", "cn1,cn2"]), ("torque", ["-l", "nodes=cn1:ppn=2+cn2:ppn=2"])],
)
def test_job_over_several_nodes_names_each_of_them(system: str, expected: list[str]) -> None:
    assert slurm_nodes.options_of(system, 2) == expected
