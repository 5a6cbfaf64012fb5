# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes to Galaxy is whole: a scenario that needs the hosts of the lab, which stay here, stays here with them."""

from __future__ import annotations

import pathlib

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
IGNORED = yaml.safe_load((ROOT / "galaxy.yml").read_text())["build_ignore"]
SCENARIOS = sorted(path.parent for path in (ROOT / "extensions/molecule").glob("*/molecule.yml"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario_goes_out_with_all_that_it_reads(scenario: pathlib.Path) -> None:
    ours = any("../hosts/" in file.read_text() for file in scenario.rglob("*.yml"))
    assert (str(scenario.relative_to(ROOT)) in IGNORED) == ours
