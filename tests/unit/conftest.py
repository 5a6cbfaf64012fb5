# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For all unit tests."""

from __future__ import annotations

import hypothesis

# how long an example takes depends on what else the machine does
hypothesis.settings.register_profile(
    "vtorque", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)  # fmt: skip
hypothesis.settings.load_profile("vtorque")
