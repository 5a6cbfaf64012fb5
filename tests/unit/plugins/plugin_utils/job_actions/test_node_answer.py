# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer of a node that lies is an error of ours that names it, whatever it is."""

from __future__ import annotations

import contextlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions import node_answer

OWNER = messages.Owner("alice", 4242, 4242, "alice", "/home/alice", "/bin/sh")
PART = messages.NodePart(1, "absent", "7.head", 2, "cn2", 60.0, OWNER, ())
DEEP = 1_000_000


@pytest.mark.parametrize(
    "output",
    [b"[" * DEEP, b'{"a":' * DEEP, b'{"version":1,"ok":true,"removed":[' + b"[" * DEEP],
    ids=["lists", "objects", "within"],
)
def test_nobody_follows_an_answer_as_deep_as_it_likes(output: bytes) -> None:
    with pytest.raises(VTorqueError, match="vtorque-node on cn2"):
        node_answer.read_answer(PART, 0, output, b"")


@pytest.mark.parametrize("key", ["removed", "left", "guests", "used", "bare", "error"])
def test_what_can_just_be_read_is_shown_or_refused(key: str) -> None:
    """Between what JSON's reader follows and what Python shows of it are a few calls."""
    ok = b"false" if key == "error" else b"true"
    head = b'{"version":1,"ok":%s,"%s":' % (ok, key.encode())
    for depth in (*range(850, 1010), *range(1010, 30_000, 997)):
        for opened, closed in ((b"[", b"]"), (b'[{"what":', b"}]")):
            with contextlib.suppress(VTorqueError):
                node_answer.read_answer(PART, 0, head + opened * depth + closed * depth + b"}", b"")
