# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every test of the contract runs for each batch system of the registry."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.registry import SYSTEMS

from .material import Material
from .openpbs_material import OpenPbsMaterial
from .slurm_material import SlurmMaterial
from .torque_material import TorqueMaterial

MATERIAL: dict[str, t.Callable[[pathlib.Path], Material]] = {
    "torque": TorqueMaterial,
    "slurm": SlurmMaterial,
    "openpbs": OpenPbsMaterial,
}


@pytest.fixture(params=SYSTEMS)
def material(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Material:
    return MATERIAL[request.param](tmp_path)
