# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the commands find their server; an installed copy has its own values here (`install.py` above)."""

from __future__ import annotations

SOCKETS = "/run/lab-torque"
HOST = ""
SERVER = "fe"
HOME = "/var/spool/torque"
