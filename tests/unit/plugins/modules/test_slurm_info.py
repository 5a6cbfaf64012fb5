# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles ask a site's Slurm before they install beside it, and before they take it away."""

from __future__ import annotations

import pathlib
import platform
import re

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
        no_json = "echo \"scontrol: unrecognized option '--json'\" >&2; exit 1"
        refusal = f"[ $0,$1 != {place}/scontrol,-a ] || {{ {no_json}; }}"
        (place / name).write_text(f"#!/bin/sh\n{refusal}\nexec cat {answers.get(name, '/dev/null')}\n")
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


MODULE = "/etc/vtorque/slurm/vtorque_job_submit.lua"
CALLS = f'''local is_there, vtorque = pcall(dofile, "{MODULE}")'''


def plain_sbatch(
    place: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
    *,
    plugins: str = "(null)",
    controller: str = "",
    file: str = "",
) -> list[str]:
    """What a site reads about plain sbatch that wants it.

    Args:
        place: an empty directory.
        capfd: of pytest.
        plugins: JobSubmitPlugins of the controller.
        controller: its host; "": this one.
        file: the text of the site's own job_submit.lua; "": there is none.
    """
    if file:
        (place / "job_submit.lua").write_text(file)
    changed = {
        r"(?m)^(JobSubmitPlugins +=) .*$": plugins,
        r"(?m)^(SlurmctldHost\[0\] +=) .*$": controller or platform.node(),
        r"(?m)^(SLURM_CONF +=) .*$": f"{place}/slurm.conf",
    }
    text = CONFIG
    for pattern, value in changed.items():
        text, count = re.subn(pattern, rf"\1 {value}", text)
        assert count == 1
    settings = run(slurm_info, capfd, commands=str(commands(place / "bin", text)), job_submit=MODULE)["settings"]
    assert isinstance(settings, list)
    return settings


def test_lines_for_plain_sbatch_are_named_where_the_site_wants_it(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugins, calls = plain_sbatch(tmp_path, capfd)
    assert "write JobSubmitPlugins=lua into slurm.conf" in plugins
    assert f"{tmp_path}/job_submit.lua of {platform.node()}, at its top" in calls
    assert f"`{CALLS}`" in calls
    assert "`if is_there and vtorque(job_desc) ~= slurm.SUCCESS then return slurm.ERROR end`" in calls


def test_plugins_of_the_sites_own_stay_in_the_line(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    plugins, _calls = plain_sbatch(tmp_path, capfd, plugins="all_partitions")
    assert "write JobSubmitPlugins=all_partitions,lua into" in plugins


def test_site_whose_file_calls_the_module_hears_nothing_of_it(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert plain_sbatch(tmp_path, capfd, plugins="lua", file=f"{CALLS}\n") == []


def test_controller_of_another_host_needs_the_module_too(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (calls,) = plain_sbatch(tmp_path, capfd, plugins="lua", controller="head9(192.0.2.1)", file="-- another's\n")
    assert f"job_submit.lua of head9, if it does not call {MODULE} yet, which must be there" in calls


def test_jobs_are_those_in_virtual_machines(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    batch = Slurm(commands(tmp_path / "bin"))
    ours = [
        batch.display_id(job.job_id) for job in batch.all_jobs() if job.x.startswith("vtorque:") and job.state != "C"
    ]
    assert ours
    assert run(slurm_info, capfd, commands=str(tmp_path / "bin"))["jobs"] == ours


def test_slurm_that_does_not_tell_prolog_the_comment_is_refused(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = commands(tmp_path / "bin", CONFIG.replace("= 22.05.8", "= 21.08.5"))
    (fault,) = run(slurm_info, capfd, commands=str(place))["faults"]
    assert "21.08.5" in fault


@pytest.mark.parametrize(("version", "words"), [("24.11.5", 0), ("26.05.3", 0), ("27.11.0-0rc1", 1), ("next", 1)])
def test_slurm_that_nobody_has_tried_is_tried_and_named(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], version: str, words: int
) -> None:
    place = commands(tmp_path / "bin", CONFIG.replace("= 22.05.8", f"= {version}"))
    result = run(slurm_info, capfd, commands=str(place))
    assert (result["faults"], len(result["settings"])) == ([], words)
    assert all(version in one for one in result["settings"])


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
