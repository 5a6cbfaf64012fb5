# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `vtorque-node` loads before it is needed."""

from __future__ import annotations

import contextlib
import importlib

from ...module_utils.node.lifecycle import present_absent

NEEDED = (
    f"{present_absent.__package__}.creation.build",
    f"{present_absent.__package__}.creation.preflight",
    "libvirt",
    "jinja2",
    "pycdlib",
)
"""What `present` imports before guests boot; nothing of it starts a thread, which a fork would not survive."""


def load_needed() -> None:
    """Before a worker is begun: it finds it loaded, as does the process that makes the guests, and what comes last."""
    for name in NEEDED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
