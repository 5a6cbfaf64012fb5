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
)
"""What `present` imports before guests run; nothing of it starts a thread, which a fork would not survive."""
OF_BOOTS = ("pycdlib",)
"""What it imports besides for guests that boot: it writes their seeds."""
OF_WARM_STARTS = (f"{present_absent.__package__}.creation.warm_starts",)
"""What it imports instead where guests start from templates; one that boots all the same waits for the other."""


OF_REMOVALS = ("libvirt",)
"""What `absent` imports."""


def load_needed(*, warm: bool) -> None:
    """Before a worker is begun: it finds it loaded, as does the process that makes the guests, and what comes last.

    Args:
        warm: guests start from templates here, where there is one.
    """
    _load(*NEEDED, *(OF_WARM_STARTS if warm else OF_BOOTS))


def load_for_removal() -> None:
    """Before the request to remove a start is read."""
    _load(*OF_REMOVALS)


def _load(*names: str) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
