# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of supported versions holds runs and nothing else."""

from __future__ import annotations

import datetime
import pathlib
import re
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.tests.texts import support as texts

from .loaded_program import load_program

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPPORT = load_program(ROOT / "tests/support.py")
RUN = {
    "command": "make demo", "date": datetime.date(2026, 11, 1), "system": "Debian 13.8", "batch": ["Slurm 24.11.5"],
    "libvirt": "11.3.0", "qemu": "10.0.13", "nftables": "1.1.3", "python": "3.13.5", "ansible-core": "2.21.5",
    "machine": "x86_64",
}  # fmt: skip


def merged(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, *runs: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the runs of a table with `RUN` in it, after these were folded in."""
    table = place / "support.yml"
    table.write_text("besides: {}\n" + SUPPORT.dump({"runs": [RUN]}), encoding="utf-8")
    for number, run in enumerate(runs):
        (place / "runs").mkdir(exist_ok=True)
        (place / f"runs/{number}.yml").write_text(SUPPORT.dump([run]), encoding="utf-8")
    monkeypatch.setattr(SUPPORT, "TABLE", table)
    SUPPORT.merge_runs(place / "runs")
    found: list[dict[str, t.Any]] = yaml.safe_load(table.read_text(encoding="utf-8"))["runs"]
    return found


@pytest.mark.parametrize(
    ("changed", "dates"),
    [
        ({"date": datetime.date(2026, 11, 9), "libvirt": "11.3.1"}, ["2026-11-09"]),
        ({"date": datetime.date(2026, 10, 9)}, ["2026-11-01"]),
        ({"date": datetime.date(2026, 11, 9), "libvirt": "12.9.0"}, ["2026-11-01", "2026-11-09"]),
        ({"date": datetime.date(2026, 11, 9), "command": "make kvm"}, ["2026-11-01", "2026-11-09"]),
    ],
    ids=["later", "earlier", "another release", "another command"],
)
def test_later_run_replaces_the_former_of_the_same_releases(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, t.Any], dates: list[str]
) -> None:
    assert [str(run["date"]) for run in merged(tmp_path, monkeypatch, {**RUN, **changed})] == dates


def test_each_row_is_a_command_of_the_makefile_that_ran_on_a_date_with_versions() -> None:
    targets = set(
        re.findall(r"^([a-z0-9-]+(?: [a-z0-9-]+)*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    known = {one for line in targets for one in line.split()}
    runs = texts.table()["runs"]
    assert runs
    for run in runs:
        assert set(run) == set(RUN)
        assert run["command"].split()[1] in known
        assert isinstance(run["date"], datetime.date)


def test_releases_are_listed_once_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [{**RUN, "libvirt": one} for one in ("11.3.0", "9.0.0", "11.3.2")]
    monkeypatch.setattr(texts, "table", lambda: {"runs": runs, "besides": {}})
    assert texts.releases("libvirt") == ["9.0", "11.3"]
    assert texts.releases("batch") == ["Slurm 24.11"]
    assert texts.releases("system") == ["Debian 13"]
