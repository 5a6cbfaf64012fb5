# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things lie: on the machine, and on every node."""

from __future__ import annotations

import pathlib

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
RUNTIME = CHECKOUT / "build/runtime"
POOL = CHECKOUT / "build/pool"

LAB = pathlib.Path("/opt/vtorque-lab")
"""Where a node sees the lab's own Python package."""
OWN_VENV = LAB / "venv"
"""Where it sees the Python that runs the lab's own programs, whether the product is there or not."""
VENV = pathlib.Path("/opt/vtorque/venv")
PLAN = pathlib.Path("/run/lab/node.json")
"""What a node knows of itself (`state.NodePlan`)."""
