# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image brought to nodes before jobs want it: each node copies it by itself, and is asked how far it is.

Nodes are asked by `vtorque-node`, as the doctor asks them.  What is asked for is an image of the node's own pool, so
that nobody can bring it anything else, and its own bounds hold (cache_max, cache_rate).
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import subprocess
import typing as t

from ...module_utils.errors import SiteFault, VTorqueError, error_from_dict
from ...module_utils.job.config.parameters import DEFAULT_PREFIX
from ...module_utils.job.doctor.node_checks import SSH, last_line, ssh_call
from ...module_utils.text import printable
from ...module_utils.wire.form import to_dict
from ...module_utils.wire.messages import VERSION, ImageOrder
from ...module_utils.wire.node_command import program_path
from ..bridge.upkeep.examine import PROGRAM, WAY_IN, call

AT_ONCE = 32
LOOK_S = 5.0
"""A node answers at the latest after so long, with how far it is."""
HERE, FAILED, SILENT = "here", "failed", "silent"

Report = t.Callable[[str, str], None]
"""Hears of a node, in words, whenever there is something new."""


@dataclasses.dataclass(frozen=True, slots=True)
class PushResult:
    """What became of an image on one node.

    Attributes:
        state: `here`, `failed`, or `silent`: the node could not be asked.
        reason: why not, or "".
    """

    node: str
    state: str
    reason: str = ""


def push(
    image: str,
    nodes: t.Sequence[str],
    *,
    fs_type: str,
    ssh_timeout_s: float,
    prefix: str = DEFAULT_PREFIX,
    ssh: str = SSH,
    report: Report = lambda _node, _text: None,
) -> tuple[PushResult, ...]:
    """Have nodes copy an image, many at once, and wait until all have it or cannot.

    Args:
        image: with its revision.
        nodes: their names.
        fs_type: `local` or `ramdisk`.
        ssh_timeout_s: seconds for a connection.
        prefix: where nodes have vTorque.
        ssh: the program.
        report: hears how far each is.

    Returns:
        What became of it, in the order of the nodes.
    """

    def one(node: str) -> PushResult:
        try:
            command = [*ssh_call(node, ssh_timeout_s, ssh), str(program_path(PROGRAM, prefix))]
            brought = _bring(node, image, fs_type, command, ssh_timeout_s, report)
        except (OSError, VTorqueError) as error:
            brought = PushResult(node, SILENT, str(error))
        report(node, brought.reason or brought.state)
        return brought

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return tuple(pool.map(one, nodes))


def _bring(
    node: str, image: str, fs_type: str, command: t.Sequence[str], ssh_timeout_s: float, report: Report
) -> PushResult:
    again = False
    while True:
        order = ImageOrder(VERSION, "image", image, fs_type, again, LOOK_S)
        try:
            answer = _send_order(command, order, ssh_timeout_s)
        except SiteFault as error:
            return PushResult(node, SILENT, str(error))
        except VTorqueError as error:
            return PushResult(node, FAILED, str(error))
        if answer.get("here") is True:
            return PushResult(node, HERE)
        report(node, printable(str(answer.get("words", ""))[:200]))
        again = True


class _NodeRefused(VTorqueError):
    """What a node said instead."""


def _send_order(command: t.Sequence[str], order: ImageOrder, ssh_timeout_s: float) -> dict[str, t.Any]:
    question = json.dumps(to_dict(order)).encode() + b"\n"
    patience_s = ssh_timeout_s + order.timeout_s + 30.0
    try:
        done = call(command, question, patience_s)
    except subprocess.TimeoutExpired:
        raise SiteFault("no answer", f"in {patience_s:.0f} s") from None
    problem = last_line(done.stderr, done.returncode)
    if done.returncode == 255:
        raise SiteFault("no answer by ssh", problem, WAY_IN)
    try:
        answer = json.loads(done.stdout)
        if answer.get("ok") is not True:
            raise _NodeRefused(str(error_from_dict(answer["error"])))
        return dict(answer["image"])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise SiteFault("no answer", problem, f"is {PROGRAM} of this version there?") from None
