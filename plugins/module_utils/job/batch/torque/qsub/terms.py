# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users of Torque type; see `Terms` (registry.py)."""

from __future__ import annotations

HOSTS = "-l nodes"
ASK_FOR_HOSTS = "-l nodes={hosts}:ppn=N"
SLOTS = "ppn"
MEMORY = "mem"
REQUEST = "its -W x="
TERMINAL = "-I"
SHELL = "-S"
DIRECTORY = "-d"
OTHER_DIRECTORY = "submit the job with another -d, or none"
AS_OWNER = "submit VM jobs as yourself, without -u or -P"
OWN_CORES = "use a MOM that makes cpusets (--enable-cgroups)"
JOB_TYPE = "-T"
