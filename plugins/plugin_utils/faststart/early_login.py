# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ssh of the job's shell, begun while the guests are told of each other, or right after that."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import VTorqueError
from ...module_utils.guest_kinds import kind_of
from ...module_utils.job.batch import job_snapshot
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.plan.job_plan import JobPlan
from ..bridge.node_settings import host_name, settings_of
from ..job_actions.action_base import JobPlace
from ..job_actions.shell_access import SHELL, all_guests, ready_record, shell_of, spec_of, write_access
from . import early_ssh


@leaves_nothing
def site_speaks_first(policy: Policy) -> bool:
    """Return whether the site has a prologue or updates in guests, which may change a login or refuse the start.

    Args:
        policy: the site's.
    """
    return policy.security_updates or any(map(os.path.lexists, settings_of(policy, host_name()).guest_prologues))


def begin(place: JobPlace, plan: JobPlan, bare: t.Iterable[str], policy: Policy) -> None:
    """Begin it where a hook of ours plays; what fails here is left to the shell, which meets the same and tells it.

    Args:
        place: the start of the job; its guests are ready.
        plan: whose job it is.
        bare: the hosts that stay bare.
        policy: the site's.
    """
    if SHELL not in os.environ:
        return
    with contextlib.suppress(OSError, VTorqueError):
        job = job_snapshot.read_snapshot(place.job_id, place.run_dir)
        if job is None or not policy.fast_start or not early_ssh.wanted(job, policy):
            return
        guests = all_guests(place, plan)
        if not all(kind_of(spec_of(plan, node, facts).distro).linux for node, facts in guests):
            return
        write_access(place, plan, guests)
        record = ready_record(place, plan, guests, bare, shell_of(os.environ))
        if record.returned:  # its far end runs already
            return
        early_ssh.begin(record, place.run_dir, plan.owner)
