# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers of signals by which the owner of a job asks its shell for a checkpoint.

The shell, which loads no adapter for them, has the same ones (`job/shell/job_signals.py`).
"""

from __future__ import annotations

CHECKPOINT_SIGNAL, PARK_SIGNAL = 60, 61
