# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two profiles of an image side by side: their figures, and the stages of their boots."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from rich.console import Console

from tests.bench import __main__ as bench
from tests.bench import profiles
from tests.bench.figures import PROFILES
from tests.bench.profiles import Stage, compare, stages_of

SPANS = [
    {"phase": "firmware", "what": "firmware", "begin_s": 0.0, "seconds": 1.5},
    {"phase": "udev", "what": "systemd-udevd.service", "begin_s": 4.0, "seconds": 2.0},
    {"phase": "udev", "what": "systemd-udev-trigger.service", "begin_s": 3.0, "seconds": 2.0},
    {"phase": "udev", "what": "systemd-udev-settle.service", "begin_s": 8.0, "seconds": 0.5},
]


class PlayedSite:
    """Says what programs of a node would."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.seconds = iter([20.0, 40.0, 30.0, 40.0, 25.0, 100.0])

    def __enter__(self) -> PlayedSite:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def ask(self, _node: str, name: str, image: str, *_given: t.Any) -> dict[str, t.Any]:
        self.asked.append((name, image))
        return {"seconds": next(self.seconds)} if name == "bare_boot" else {"spans": SPANS}


def test_each_fast_boot_is_held_against_the_stock_one_of_its_round() -> None:
    """Both by themselves, and the ratio of each pair."""
    assert compare([20.0, 30.0], [40.0, 50.0]) == {
        "debian_fast_s": [20.0, 30.0],
        "debian_stock_s": [40.0, 50.0],
        "debian_fast_ratio": [0.5, 0.6],
    }


def test_time_that_two_parts_of_a_stage_share_counts_once() -> None:
    """From the first beginning to the last end, and how long anything was at work; what did not run is left out."""
    assert stages_of(SPANS) == {"firmware": Stage(0.0, 1.5, 1.5), "udev": Stage(3.0, 8.5, 3.5)}
    assert list(stages_of(SPANS[::-1])) == ["firmware", "udev"]


def test_both_profiles_are_booted_in_turn_and_both_are_kept(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The keys that people look for, with the target beside the figure on the screen."""
    site = PlayedSite()
    monkeypatch.setattr(bench, "Site", lambda _pool: site)
    out = tmp_path / "bench.json"
    bench.run_boot(Console(width=160, soft_wrap=True), out)
    assert site.asked == [
        *[("bare_boot", "debian12"), ("bare_boot", "debian12-stock")] * profiles.RUNS,
        ("boot_stages", "debian12"),
        ("boot_stages", "debian12-stock"),
    ]
    known = json.loads(out.read_text(encoding="utf-8"))
    assert (known["debian_fast_ratio"], known["debian_fast_ratio_runs"]) == (0.5, [0.5, 0.75, 0.25])
    assert (known["debian_fast_s"], known["debian_stock_s"]) == (25.0, 40.0)
    assert known["debian_stock_stages"]["udev"] == {"begin_s": 3.0, "end_s": 8.5, "seconds": 3.5}
    printed = capsys.readouterr().out
    assert "<= 0.85" in printed
    assert [line.split() for line in printed.splitlines() if "udev" in line] == [
        ["udev"] + ["3.00", "8.50", "3.50"] * 2
    ]


def test_only_the_ratio_has_a_target() -> None:
    """Seconds are the machine's."""
    assert {figure.key: figure.target for figure in PROFILES} == {
        "debian_fast_s": None, "debian_stock_s": None, "debian_fast_ratio": 0.85,
    }  # fmt: skip
