# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What logrotate is given: the logs of a host, and the site's own where that is another file."""

from __future__ import annotations

import gzip
import pathlib
import subprocess

import jinja2
import pytest
import yaml

LOGS = "/var/lib/vtorque/log"
ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles/common"


def render(log_file: str | None) -> str:
    """Return the file as the role writes it."""
    engine = jinja2.Environment(trim_blocks=True, autoescape=False)  # as Ansible's
    template = engine.from_string((ROLE / "templates/logrotate.j2").read_text(encoding="utf-8"))
    return template.render(common_configuration={"policy": {"log_file": log_file}})


@pytest.mark.parametrize(
    ("log_file", "files"),
    [
        (None, "/var/lib/vtorque/log/*.log"),
        ("/var/log/vtorque site.log", '/var/lib/vtorque/log/*.log "/var/log/vtorque site.log"'),
        # logrotate refuses a file that is named twice
        ("/var/lib/vtorque/log/site.log", "/var/lib/vtorque/log/*.log"),
    ],
)
def test_logrotate_rotates_each_log_once(log_file: str | None, files: str) -> None:
    lines = [line for line in render(log_file).splitlines() if not line.startswith("#")]
    assert lines[0] == f"{files} {{"
    assert lines[-1] == "}"


def logrotate(place: pathlib.Path, log_file: str | None, *options: str) -> str:
    """Give logrotate the file, with the logs in another place, and return what it has reported."""
    logs = place / "log"
    logs.mkdir(exist_ok=True)
    path = place / "vtorque"
    path.write_text(render(log_file).replace(LOGS, str(logs)))
    path.chmod(0o644)
    done = subprocess.run(
        ["/usr/sbin/logrotate", *options, "--state", place / "state", path], capture_output=True, text=True, check=False
    )
    report = done.stdout + done.stderr
    assert done.returncode == 0, report
    assert "error:" not in report
    return report


@pytest.mark.parametrize("named", ["", "site log.log", "log/site.log"])
def test_logrotate_reads_the_file_without_a_complaint(named: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log/site.log").write_text("line\n")
    path = tmp_path / named
    log_file = str(path).replace(str(tmp_path / "log"), LOGS) if named else None
    report = logrotate(tmp_path, log_file, "--debug")
    assert "weekly (8 rotations)" in report
    assert report.count("considering log") == 1 + (named == "site log.log")


def test_logrotate_keeps_eight_logs_and_packs_all_but_the_newest(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log/host.log"
    for number in range(10):
        log.parent.mkdir(exist_ok=True)
        log.write_text(f"{number}\n")
        logrotate(tmp_path, None, "--force")
        assert not log.exists(), "the next line makes it"
    names = {path.name for path in log.parent.iterdir()}
    assert names == {"host.log.1", *(f"host.log.{number}.gz" for number in range(2, 9))}
    assert (tmp_path / "log/host.log.1").read_text() == "9\n"
    assert gzip.decompress((tmp_path / "log/host.log.8.gz").read_bytes()) == b"2\n"
    (tmp_path / "log/empty.log").write_text("")
    logrotate(tmp_path, None, "--force")
    assert {path.name for path in log.parent.iterdir()} == {*names, "empty.log"}, "nothing to rotate"


@pytest.mark.parametrize(("rotated", "state"), [(True, "file"), (False, "absent")])
def test_logrotate_is_left_to_a_site_that_wants_it(rotated: bool, state: str) -> None:
    entries = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__common_entries"]
    entry = next(one for one in entries if one["path"] == "/etc/logrotate.d/vtorque")
    expression = entry["state"].removeprefix("{{").removesuffix("}}")
    compiled = jinja2.Environment(autoescape=False).compile_expression(expression)
    assert compiled(common_configuration={"policy": {"log_rotate": rotated}}) == state
