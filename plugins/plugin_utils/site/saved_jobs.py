# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saved guests of all nodes: each node is asked by `vtorque-node`, as the doctor asks them."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import typing as t

from ...module_utils.errors import SiteFault, VTorqueError, error_from_dict
from ...module_utils.job.batch.host_match import same_host
from ...module_utils.job.doctor.node_checks import SSH, last_line, ssh_call
from ...module_utils.text import printable
from ...module_utils.wire.form import FormError, from_dict, to_dict
from ...module_utils.wire.messages import SavedRequest
from ...module_utils.wire.node_answers import SavedStart
from ...module_utils.wire.node_command import program_path
from ..bridge.upkeep.examine import AT_ONCE, INSTALL, PROGRAM, WAY_IN, call

Answer = dict[str, t.Any]


def query_nodes(
    request: SavedRequest, nodes: t.Sequence[str], *, ssh_timeout_s: float, prefix: str, ssh: str = SSH
) -> list[Answer | VTorqueError]:
    """Ask nodes, many at once.

    Args:
        request: the same for all.
        nodes: their names.
        ssh_timeout_s: seconds for a connection.
        prefix: where nodes have vTorque.
        ssh: the program.

    Returns:
        The answer of each, or why there is none, in the order of the nodes.
    """
    question = json.dumps(to_dict(request)).encode() + b"\n"

    def one(node: str) -> Answer | VTorqueError:
        command = [*ssh_call(node, ssh_timeout_s, ssh), str(program_path(PROGRAM, prefix))]
        try:
            return _read(node, call(command, question, ssh_timeout_s + request.timeout_s + 5.0))
        except subprocess.TimeoutExpired:
            return SiteFault(node, "gave no answer in time")
        except OSError as error:
            return SiteFault(node, str(error))
        except VTorqueError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, nodes))


def _read(node: str, done: subprocess.CompletedProcess[bytes]) -> Answer:
    try:
        answer = json.loads(done.stdout)
        if isinstance(answer, dict) and answer.get("ok") is True:
            return _checked(node, answer)
        fault: VTorqueError = error_from_dict(answer["error"])
    except FormError as error:
        fault = SiteFault(node, f"its answer is of another form: {printable(str(error))}", INSTALL)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        hint = WAY_IN if done.returncode == 255 else ""
        fault = SiteFault(node, printable(last_line(done.stderr, done.returncode)), hint)
    raise fault


def _checked(node: str, answer: Answer) -> Answer:
    """What is used of an answer: a node speaks of itself, and its text is for a terminal of root's.

    Raises:
        FormError: it is of another form.
    """
    saved, removed = answer.get("saved", []), answer.get("removed", [])
    if not isinstance(saved, list) or not isinstance(removed, list):
        raise FormError(node, "no list of what is saved, or was removed")
    starts = [from_dict(SavedStart, one) for one in saved]
    if others := sorted({one.node for one in starts if not same_host(one.node, node)}):
        raise FormError(node, f"speaks of {others[0]}")
    return {"ok": True, "saved": list(map(to_dict, starts)), "removed": [printable(str(one)) for one in removed]}
