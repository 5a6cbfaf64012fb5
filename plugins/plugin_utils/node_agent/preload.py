# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `vtorque-node` loads before it is needed, and reads once: modules and the site's policy."""

from __future__ import annotations

import contextlib
import importlib
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.job.config import policy_file
from ...module_utils.job.config.parameters import Policy
from ...module_utils.node.lifecycle import present_absent

NEEDED = (
    f"{present_absent.__package__}.build", f"{present_absent.__package__}.preflight", "libvirt", "jinja2", "pycdlib",
)  # fmt: skip
"""What `present` imports before guests boot; nothing of it starts a thread, which a fork would not survive."""


def load_early() -> t.Callable[[], Policy]:
    """Import what will be needed and read the policy; what fails now is tried again, and told, when it is needed.

    Returns:
        What gives the policy.
    """
    load_needed()
    load = read_once(policy_file.load)
    with contextlib.suppress(VTorqueError):
        load()
    return load


def load_needed() -> None:
    """Before a worker is begun: it finds it loaded, as does the process that makes the guests, and what comes last."""
    for name in NEEDED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def read_once(load: t.Callable[[], Policy]) -> t.Callable[[], Policy]:
    """Return what gives the same policy each time, once it could be read."""
    found: list[Policy] = []

    def read() -> Policy:
        if not found:
            found.append(load())
        return found[0]

    return read
