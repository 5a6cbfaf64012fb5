# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests of Torque's jobs have of it: names of variables, places of files, programs (`GuestTable`)."""

from __future__ import annotations

import typing as t

GUEST_PROGRAMS: tuple[str, ...] = ("batch/torque/guest/pbsdsh.sh",)
"""Torque's own asks a MOM, which no guest has."""
GUEST_VARIABLES: t.Mapping[str, str] = {"PBS_JOBID": "{job_id}", "PBS_NODEFILE": "{node_file}"}
GUEST_HOME = ""
GUEST_SCRIPTS = "mom_priv/jobs"
