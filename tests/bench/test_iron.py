# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The measurement of a site's own hardware, with a batch system that plays jobs at once."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess

import pytest

from tests.bench import iron

VSUB = """#!/bin/sh
# vsub -vm KEYS SCRIPT: what a job by these keys would leave
keys=$2 script=$3
echo "$keys" >>keys
case $keys in
    {refused}) echo "vsub: not here" >&2; exit 2 ;;
esac
name=$(basename "$script" .sh)
speed=2; [ "$name" = plain ] && speed=4
{{
    for work in compute copy write sync read; do echo "$work $name 0.00$speed"; done
    case $keys in *unclot=true*) echo "region: 5.00 us for a round trip, 10 of them" ;; esac
    echo "tcp: ${{speed}}00.00 us for a round trip, 10 of them"
    echo "status {status}"
}} >"$name.out"
echo 17.fe
"""


def site(place: pathlib.Path, refused: str = "nothing", status: str = "0") -> list[str]:
    """The arguments for a site whose vsub refuses these keys."""
    vsub = place / "vsub"
    vsub.write_text(VSUB.format(refused=refused, status=status), encoding="ascii")
    vsub.chmod(0o755)
    for name in iron.SOURCES:
        (place / name).touch()
    return ["--submit", str(vsub), "--vm", "img=hpc,vcpus=4", "--directory", str(place), "--rounds", "2"]


def test_bench_iron_compares_each_setting_with_the_plain_job_of_its_round(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert iron.main(site(tmp_path)) == 0
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["ratios"]
    settings = [setting.name for setting in iron.SETTINGS]
    assert figures.keys() == {
        *(f"switch_{name}_{work}_ratio" for name in settings if name != iron.PLAIN for work in iron.WORK),
        *(f"switch_{name}_region_over_tcp" for name in settings),
    }
    assert figures["switch_pinned_copy_ratio"] == pytest.approx([0.5, 0.5])
    assert figures["switch_pinned_region_ratio"] == pytest.approx([1.0, 1.0])
    assert figures["switch_cells_region_over_tcp"] == pytest.approx([0.025, 0.025])
    submitted = (tmp_path / "keys").read_text(encoding="ascii").splitlines()
    assert submitted == [f"img=hpc,vcpus=4,vms_per_node=2,{s.keys},unclot=true" for s in iron.SETTINGS] * 2
    lines = capsys.readouterr().out.splitlines()
    (row,) = (line.split() for line in lines if line.startswith("pages  "))
    assert row[:3] == ["pages", "0.50", "(0.50..0.50)"]


def test_bench_iron_leaves_out_what_the_site_refuses_and_measures_the_rest(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert iron.main(site(tmp_path, refused="*unclot*|*iocm*")) == 0
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["ratios"]
    assert "switch_pages_tcp_ratio" in figures
    assert not [key for key in figures if "io_cores" in key or "region" in key]
    reported = capsys.readouterr().err
    assert "without unclot=true: refused: vsub: not here" in reported
    assert "left out: refused: vsub: not here" in reported


def test_bench_iron_whose_plain_job_fails_has_its_last_lines_and_no_figures(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert iron.main(site(tmp_path, status="1")) == 1
    assert "the job has failed: " in capsys.readouterr().err
    assert not (tmp_path / "figures.json").exists()


def test_bench_iron_does_not_wait_for_a_job_without_end(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = site(tmp_path)
    (tmp_path / "vsub").write_text("#!/bin/sh\necho 18.fe\n", encoding="ascii")
    assert iron.main([*arguments, "--patience", "0"]) == 1
    assert "job 18.fe has left nothing in 0 s: vmgr job log 18.fe" in capsys.readouterr().err


def test_bench_iron_whose_job_was_refused_at_its_start_has_the_reason_at_once(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = site(tmp_path)
    vsub = '#!/bin/sh\necho "vtorque: this job did not run: too few processors" >$(basename "$3").e18\necho 18.fe\n'
    (tmp_path / "vsub").write_text(vsub, encoding="ascii")
    assert iron.main(arguments) == 1
    assert "job 18.fe did not run: vtorque: this job did not run: too few" in capsys.readouterr().err


def test_probe_measures_processors_and_the_disk_of_a_directory(tmp_path: pathlib.Path) -> None:
    """By the program itself; a file in memory is no disk, and is named."""
    if shutil.which("gcc") is None:
        pytest.fail("gcc is not installed (lab/prepare.sh test)")
    (tmp_path / "pingpong").touch()
    iron.compile_programs(tmp_path)
    disk = pathlib.Path(__file__).resolve().parents[2] / "build"
    done = subprocess.run([tmp_path / "probe", "guest", "here", "1", disk], capture_output=True, text=True)
    text = f"{done.stdout}{done.stderr}tcp: 7.5 us for a round trip, 1 of them\nstatus {done.returncode}\n"
    found = iron.read_result(text)
    assert found.keys() == iron.WORK.keys() - {"region"}
    assert found["tcp"] == pytest.approx(7.5e-6)
    assert all(seconds > 0 for seconds in found.values())
    assert not list(disk.glob("vtorque-probe-*"))
    memory = subprocess.run([tmp_path / "probe", "guest", "here", "1", "/proc/self"], capture_output=True, text=True)
    assert memory.returncode == 1
    assert "/proc/self/vtorque-probe-" in memory.stderr
