# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What our program asks the site's hook to do, which may do it without any right of root's: a line of JSON each.

    {"order": "offline", "note": "vtorque: ..."}     the node where the hook runs
    {"order": "hold"}                                 the job, so that its owner can release it

The hook (templates/batch/openpbs/vtorque_hook.py.j2) makes the file, reads it when our program has ended, and does
what stands there.  Root of a node is no operator of an OpenPBS server by itself: its commands are refused there.
"""

from __future__ import annotations

import json
import os
import typing as t

from ....errors import SiteFault

ANSWER = "VTORQUE_ANSWER"
"""Names the file of a hook's answer."""
CALL = "VTORQUE_CALL"
"""Holds what the hook tells: see `hook_calls`."""


def in_hook() -> bool:
    """Return whether this process is the program of a hook, whose orders the hook does."""
    return bool(os.environ.get(ANSWER))


def own_node() -> str:
    """Return the node where the hook runs, as OpenPBS calls it; "": it does not tell."""
    try:
        node = json.loads(os.environ.get(CALL, ""))["node"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return node if isinstance(node, str) else ""


def write(order: t.Mapping[str, str]) -> None:
    """Ask the hook for something.

    Args:
        order: see above.

    Raises:
        SiteFault: the hook's file does not take it.
    """
    path = os.environ.get(ANSWER, "")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "ab") as stream:
            stream.write(json.dumps(order).encode() + b"\n")
    except OSError as error:
        raise SiteFault(path or ANSWER, f"the hook cannot be asked for anything: {error.strerror}") from error
