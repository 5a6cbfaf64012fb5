# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that roles would not read."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.role_variables import misspelt

KNOWN = {
    "common_": ["common_wheels", "common_packages", "common_addresses"],
    "compute_node_": ["compute_node_packages", "compute_node_manage_ssh"],
}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("compute_node_mange_ssh", "compute_node_manage_ssh"),
        ("common_adresses", "common_addresses"),
        ("compute_node_wheels", "common_wheels"),
        ("compute_node_package", "compute_node_packages"),
    ],
)
def test_misspelt_variable_names_the_likely_one(name: str, meant: str) -> None:
    (fault,) = misspelt([name], KNOWN)
    assert fault.key == name
    assert f"did you mean {meant}?" in fault.message


@pytest.mark.parametrize(
    "name",
    ["common_packages", "common_timezone", "compute_node_rack", "compute_node_", "commonly_wheel", "other_wheel"],
)
def test_variable_of_a_role_or_of_the_sites_own_is_left_alone(name: str) -> None:
    assert misspelt([name], KNOWN) == ()
