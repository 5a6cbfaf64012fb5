# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users of Slurm type; see `Terms` (registry.py)."""

from __future__ import annotations

HOSTS = "-N"
ASK_FOR_HOSTS = "-N {hosts}"
SLOTS = "processors"
MEMORY = "--mem"
REQUEST = "its --comment"
TERMINAL = "vsalloc"
SHELL = "#!"
DIRECTORY = "-D"
OTHER_DIRECTORY = "submit the job with another -D, or from another directory"
AS_OWNER = "submit VM jobs as yourself, without --uid"
OWN_CORES = "have Slurm give jobs cores of their own (TaskPlugin=task/cgroup, ConstrainCores=yes)"
JOB_TYPE = "no option"
