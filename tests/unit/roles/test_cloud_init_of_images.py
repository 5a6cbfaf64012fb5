# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role that makes images tells their cloud-init."""

from __future__ import annotations

import pathlib

import yaml

FILES = pathlib.Path(__file__).resolve().parents[3] / "roles/guest_image/files"


def test_it_looks_for_no_other_cloud_than_the_seed() -> None:
    """Each that it looks for costs the boot its time, up to minutes for one that is asked over the network."""
    report = yaml.safe_load((FILES / "90_vtorque.cfg").read_text(encoding="utf-8"))
    assert report["datasource_list"] == ["NoCloud"]
    assert report["datasource"] == {"NoCloud": {"fs_label": "cidata"}}
    program = (FILES / "profile_fast.sh").read_text(encoding="utf-8")
    assert "'policy: enabled\\ndatasource: NoCloud\\n'" in program
    assert "90_vtorque.cfg" in program


def test_nothing_of_it_runs_after_the_guest_is_ready() -> None:
    report = yaml.safe_load((FILES / "90_vtorque.cfg").read_text(encoding="utf-8"))
    assert (report["cloud_config_modules"], report["cloud_final_modules"]) == ([], [])
    assert not [module for module in report["cloud_init_modules"] if "package" in module]
