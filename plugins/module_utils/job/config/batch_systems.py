# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the site's configuration has to know of each batch system: its name, its own parameters, what it cannot give.

All else of a system is `job/batch/<system>`, which stands above the configuration.
"""

from __future__ import annotations

from ...frozen import frozen


@frozen
class SystemFacts:
    """One batch system.

    Attributes:
        commands_parameter: names the directory of its commands on all hosts, where the site says it; "": they are
            beside the site's qsub.
        no_hook_scripts: why no hook of its jobs can run a script of the user's; "": hooks can.
        spares: whether its jobs can request nodes besides those that they use.
        checkpoints: whether guests of its jobs can be saved, so that a later start begins from there.
        moves: whether guests of its jobs can move to a spare node while they run.
        node_messages: whether its server hands on what its own check of a node reports.
    """

    commands_parameter: str = ""
    no_hook_scripts: str = ""
    spares: bool = False
    checkpoints: bool = False
    moves: bool = False
    node_messages: bool = False


BATCH_SYSTEMS = {
    "torque": SystemFacts(spares=True, checkpoints=True, moves=True, node_messages=True),
    "slurm": SystemFacts(
        commands_parameter="slurm_bin",
        spares=True,
        checkpoints=True,
        moves=True,
        no_hook_scripts="cannot run with Slurm, which gives the hooks of a job neither its variables nor its output",
    ),
    "openpbs": SystemFacts(
        no_hook_scripts="cannot run with OpenPBS, which gives the hooks of a job no output but its error file"
    ),
}
"""By what `batch_system` says."""


def facts_of(system: str) -> SystemFacts:
    """Return the facts of a batch system; none of one that nobody knows: who opens it refuses it.

    Args:
        system: what `batch_system` says.
    """
    return BATCH_SYSTEMS.get(system, SystemFacts())


def commands_parameter(system: str, *, front_end: bool = False) -> str:
    """Return the parameter that says where the batch system's commands are.

    Args:
        system: what `batch_system` says.
        front_end: whether it is for a host that uses pbs_qsub_on_fe, not pbs_qsub_on_nodes.
    """
    return facts_of(system).commands_parameter or ("pbs_qsub_on_fe" if front_end else "pbs_qsub_on_nodes")
