# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles ask a site's Slurm before they install beside it, and before they take it away."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import doctor_checks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.adapter import Slurm
from ansible_collections.mikelangelo.vtorque.plugins.modules import slurm_info

from .running import run

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures/slurm"
CONFIG = (FIXTURES / "config.txt").read_text()


def commands(place: pathlib.Path, config: str = CONFIG, jobs: str = "squeue-running.json") -> pathlib.Path:
    """Slurm's commands, with recorded answers."""
    place.mkdir()
    (place / "config").write_text(config)
    answers = {"scontrol": place / "config", "squeue": FIXTURES / jobs, "sinfo": FIXTURES / "sinfo-nodes.json"}
    for name in slurm_info.COMMANDS:
        (place / name).write_text(f"#!/bin/sh\nexec cat {answers.get(name, '/dev/null')}\n")
        (place / name).chmod(0o755)
    return place


def test_site_whose_slurm_is_set_for_it_hears_nothing(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run(slurm_info, capfd, commands=str(commands(tmp_path / "bin")))
    assert (result["installed"], result["faults"], result["settings"]) == (True, [], [])
    assert not result["changed"]


def test_settings_are_named_in_the_doctors_own_words(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = commands(tmp_path / "bin", CONFIG.replace("= 360 sec", "= 10 sec"))
    finding = doctor_checks.check_server(Slurm(place), ())
    result = run(slurm_info, capfd, commands=str(place), nodes=["cn1"])
    assert result["faults"] == []
    assert result["settings"] == [f"{finding.problem}: {finding.remedy}"]
    assert "BatchStartTimeout=" in result["settings"][0]


def test_all_lines_that_are_missing_are_named_at_once(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = CONFIG.replace("= 360 sec", "= 10 sec").replace("= Alloc,Contain", "= (null)")
    text = text.replace("= /etc/vtorque/slurm/prolog", "= (null)").replace("= /etc/vtorque/slurm/epilog", "= (null)")
    output = run(slurm_info, capfd, commands=str(commands(tmp_path / "bin", text)))["settings"]
    lines = ("PrologFlags=Alloc,Contain", "BatchStartTimeout=", "Prolog=/etc/vtorque/", "Epilog=/etc/vtorque/")
    assert len(output) == len(lines)
    assert all(f"write {line}" in one for line, one in zip(lines, output, strict=True))


def test_lines_that_lead_to_our_launchers_are_named_by_pattern_and_link_too(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    launchers, site = tmp_path / "launchers", tmp_path / "site"
    for place in (launchers, site):
        place.mkdir()
    (launchers / "epilog").touch()
    (site / "50-vtorque").symlink_to(launchers / "epilog")
    text = CONFIG.replace("/etc/vtorque/slurm/prolog", str(launchers / "prolog"))
    text = text.replace("/etc/vtorque/slurm/epilog", f"{site}/*")
    result = run(slurm_info, capfd, commands=str(commands(tmp_path / "bin", text)), launchers=str(launchers))
    assert result["calls"] == [f"Prolog={launchers}/prolog", f"Epilog={site}/*"]
    place = str(tmp_path / "bin")
    assert run(slurm_info, capfd, commands=place, launchers=str(launchers), node="cn1.site")["calls"] == result["calls"]
    assert run(slurm_info, capfd, commands=place, launchers=str(launchers), node="gone")["calls"] == []
    (site / "50-vtorque").unlink()
    text = text.replace(str(launchers), "/opt/site")
    result = run(slurm_info, capfd, commands=str(commands(tmp_path / "other", text)), launchers=str(launchers))
    assert result["calls"] == []


def test_jobs_are_those_in_virtual_machines(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    batch = Slurm(commands(tmp_path / "bin"))
    ours = [
        batch.display_id(job.job_id) for job in batch.all_jobs() if job.x.startswith("vtorque:") and job.state != "C"
    ]
    assert ours
    assert run(slurm_info, capfd, commands=str(tmp_path / "bin"))["jobs"] == ours


@pytest.mark.parametrize("version", ["21.08.5", "23.02.1"])
def test_another_slurm_is_refused(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], version: str) -> None:
    place = commands(tmp_path / "bin", CONFIG.replace("= 22.05.8", f"= {version}"))
    (fault,) = run(slurm_info, capfd, commands=str(place))["faults"]
    assert version in fault


def test_host_without_slurm_is_told_what_to_name(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    (commands(tmp_path / "bin") / "squeue").unlink()
    result = run(slurm_info, capfd, commands=str(tmp_path / "bin"))
    assert not result["installed"]
    assert result["faults"] == [
        f"squeue of Slurm not in {tmp_path}/bin: vtorque_slurm_bin must name the directory that has them"
    ]


def test_controller_that_does_not_answer_is_a_fault(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = commands(tmp_path / "bin")
    (place / "scontrol").write_text(
        "#!/bin/sh\necho 'Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"
    )
    result = run(slurm_info, capfd, commands=str(place))
    assert result["installed"]
    assert "controller cannot be reached" in result["faults"][0]
    assert "munged" in result["faults"][0]
