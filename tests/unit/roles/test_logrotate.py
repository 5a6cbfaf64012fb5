# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What logrotate is given: the logs of a host, and the site's own where that is another file."""

from __future__ import annotations

import pathlib

import jinja2
import pytest
import yaml

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles/common"


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
    engine = jinja2.Environment(trim_blocks=True, autoescape=False)  # as Ansible's
    template = engine.from_string((ROLE / "templates/logrotate.j2").read_text(encoding="utf-8"))
    text = template.render(common_configuration={"policy": {"log_file": log_file}})
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[0] == f"{files} {{"
    assert lines[-1] == "}"


@pytest.mark.parametrize(("rotated", "state"), [(True, "file"), (False, "absent")])
def test_logrotate_is_left_to_a_site_that_wants_it(rotated: bool, state: str) -> None:
    entries = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__common_entries"]
    entry = next(one for one in entries if one["path"] == "/etc/logrotate.d/vtorque")
    expression = entry["state"].removeprefix("{{").removesuffix("}}")
    compiled = jinja2.Environment(autoescape=False).compile_expression(expression)
    assert compiled(common_configuration={"policy": {"log_rotate": rotated}}) == state
