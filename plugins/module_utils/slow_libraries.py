# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Libraries that take milliseconds to load and that few runs of a program need: loaded by the first who uses one.

Hooks, the job's shell and `vsub` import modules that could need one of these, and a job waits for each of them.  This
is the one place that loads a library late; a module that cannot do anything without it imports it at its top.
"""

from __future__ import annotations

import importlib
import typing as t

from .effects import leaves_nothing

REASONS = {
    "ClusterShell.NodeSet": "20 ms that a command about one node does not pay",
    "concurrent.futures": "10 ms that a node with a single guest of the job does not pay",
    "ctypes": "1.6 ms that most programs with `system/process/prctl.py` never come to pay",
    "difflib": "1 ms of each hook that only a wrong word needs",
    "hashlib": "4 ms, with OpenSSL, of each `vsub` that only a request with a file pays",
    "http.client": "10 ms that only jobs in OSv pay",
    "importlib.metadata": "15 ms that are paid only where a package does not name its version itself",
    "inotify_simple": "2.5 ms, with ctypes, that only those pay who wait for a change of a file",
    "jinja2": "16 ms that a hook pays only when it renders",
    "jmespath": "20 ms that only a command with `--query` pays",
    "netaddr": "7 ms that only those pay who write a MAC address in an unusual form",
    "pycdlib": "60 ms that only those pay who write or read a seed",
    "rich.box": "as rich.live",
    "rich.console": "35 ms, with the next two, that only a command on a terminal pays, to show how far it is",
    "rich.live": "60 ms, with box and table, that only who watches jobs on a terminal pays",
    "rich.progress": "as rich.console",
    "rich.table": "as rich.live",
    "rich.text": "as rich.console",
    "yaml": "10 ms that only those pay who read what has not been read before",
}
"""Which libraries may be loaded late, each with what that saves and whom."""


@leaves_nothing
def load_library(name: str) -> t.Any:
    """Return a module of a library, which is loaded by the first call.

    Args:
        name: of `REASONS`.

    Raises:
        ImportError: it is not installed.
        LookupError: there is no reason to load it late.
    """
    if name not in REASONS:
        raise LookupError(f"{name} is to be imported at the top of a module")
    return importlib.import_module(name)
