# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users of OpenPBS type; see `Terms` (registry.py)."""

from __future__ import annotations

HOSTS = "-l select"
ASK_FOR_HOSTS = "-l select={hosts}:ncpus=N"
SLOTS = "ncpus"
MEMORY = "mem"
REQUEST = "its resource vtorque"
TERMINAL = "-I"
SHELL = "-S"
DIRECTORY = "the directory"
OTHER_DIRECTORY = "submit the job from another directory"
AS_OWNER = "submit VM jobs as yourself, without -u or -P"
OWN_CORES = "use OpenPBS's cgroups hook"
JOB_TYPE = "no option"
