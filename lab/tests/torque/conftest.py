# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A batch system of two nodes for each file of tests, or of those that its `SLOTS` names."""

from __future__ import annotations

import typing as t

import pytest

from lab.torque import trial


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> t.Iterator[trial.Trial]:
    made = trial.Trial(getattr(request.module, "SLOTS", {"n1": 2, "n2": 2}))
    yield made
    made.close()


@pytest.fixture
def system(cluster: trial.Trial) -> t.Iterator[trial.Trial]:
    cluster.fresh()
    yield cluster
    cluster.delete_all()
