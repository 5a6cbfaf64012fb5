# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's environment, which the launchers keep aside as data: it is for qsub, and must not change how we run."""

from __future__ import annotations

import base64
import os

from ....module_utils.job.shell.environment import read_environ

DESCRIPTOR = "VTORQUE_ENVIRONMENT_FD"
"""Names the descriptor with the environment, in base64 as `/proc/PID/environ` had it."""


def caller_environment() -> dict[bytes, bytes]:
    """The environment that the user called us with; our own where no launcher kept another one aside."""
    number = os.environ.get(DESCRIPTOR)
    if number is None:
        return dict(os.environb)
    with open(int(number), "rb") as stream:  # noqa: PTH123 - a descriptor
        return read_environ(base64.b64decode(stream.read()))
