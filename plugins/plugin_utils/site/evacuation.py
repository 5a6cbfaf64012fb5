# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is asked to send its guests to spare nodes, by its `vtorque-node`."""

from __future__ import annotations

import json
import subprocess

from ...module_utils.errors import SiteFault, VTorqueError, error_from_dict
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.doctor.node_checks import last_line, ssh_call
from ...module_utils.text import printable
from ...module_utils.wire.form import FormError, from_dict, to_dict
from ...module_utils.wire.moves import Evacuation, Evacuee
from ...module_utils.wire.node_command import program_path
from ..bridge.upkeep.examine import INSTALL, PROGRAM, WAY_IN, call

LOOK_S, MOVES_S = 120.0, 86_400.0
"""Seconds for the answer of a node that says what it would do, and of one that does it: each move has its own bound."""


def evacuate_node(node: str, policy: Policy, *, dry_run: bool) -> tuple[Evacuee, ...]:
    """Return what became of the guests of a node, or would.

    Args:
        node: its name; it may be this one.
        policy: the site's.
        dry_run: move none.

    Raises:
        SiteFault: it does not answer, or not in the form.
        VTorqueError: it refuses, in its words.
    """
    question = json.dumps(to_dict(Evacuation(1, "evacuate", node, dry_run))).encode() + b"\n"
    command = [*ssh_call(node, float(policy.ssh_timeout)), str(program_path(PROGRAM, policy.prefix_nodes))]
    try:
        done = call(command, question, LOOK_S if dry_run else MOVES_S)
    except subprocess.TimeoutExpired:
        raise SiteFault(node, "gave no answer in time") from None
    except OSError as error:
        raise SiteFault(node, str(error)) from error
    try:
        answer = json.loads(done.stdout)
        if answer["ok"] is True:
            return tuple(from_dict(Evacuee, one) for one in answer["evacuees"])
        fault: VTorqueError = error_from_dict(answer["error"])
    except FormError as error:
        raise SiteFault(node, f"its answer is of another form: {printable(str(error))}", INSTALL) from error
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        hint = WAY_IN if done.returncode == 255 else INSTALL
        raise SiteFault(node, printable(last_line(done.stderr, done.returncode)), hint) from None
    raise fault
