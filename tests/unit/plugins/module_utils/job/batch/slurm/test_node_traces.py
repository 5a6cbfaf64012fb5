# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurmd has on a node, asked by a sweep that looks at many starts."""

from __future__ import annotations

import pathlib

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import node_traces
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy


def test_alive_here_for_many_starts_asks_slurm_once(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text(
        f"#!/bin/sh\necho asked >>{tmp_path}/calls\necho PID JOBID STEPID LOCALID GLOBALID\necho 41 7 batch 0 0\n"
    )
    program.chmod(0o755)
    alive_here = node_traces.alive_here(Policy(batch_system="slurm", pbs_qsub_on_nodes=f"{tmp_path}/qsub"))
    assert [alive_here(f"{number}.lab") for number in (7, 8, 9, 7)] == [True, False, False, True]
    assert (tmp_path / "calls").read_text() == "asked\n"
