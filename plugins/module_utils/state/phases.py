# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of the phases of a start, from which the job's record says where the time went."""

from __future__ import annotations

import json
import pathlib

from ..system import files
from . import layout


def write_phase(directory: pathlib.Path, name: str, *, began: float, seconds: float, **more: float) -> None:
    """Write the figure of a phase that has ended (`phase.<name>.json`).

    Args:
        directory: the run directory of the start.
        name: of the phase.
        began: when it began, in seconds since the epoch.
        seconds: that it took.
        more: further figures of it.

    Raises:
        VTorqueError: it was not written.
    """
    figure = {"began": round(began, 3), "seconds": round(seconds, 4), **more}
    files.write(directory / layout.StepFile.PHASE.of(name), json.dumps(figure))
